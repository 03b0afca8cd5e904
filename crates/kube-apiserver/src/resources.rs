//! The one table of what is served: built-in kinds from the start, custom kinds while running.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use api::schema;
use bytes::Bytes;
use machinery::kind::Kind;
use machinery::schema::{Schemas, TypeId, TypeRef};
use machinery::status::{GroupResource, Status};
use serde_json::Value;
use store::cache::{self, Cache, Item};

use crate::app::App;
use crate::custom::CustomRules;
use crate::custom::convert::Converter;
use crate::runtime_config::RuntimeConfig;
use crate::{describe, reduced};

/// A kind as it is served: its rules, its shape, and where its objects are.
pub struct Resource {
    /// The version that was asked for.
    pub kind: KindRef,
    /// The version that is stored; the same as `kind` for most.
    pub stored: KindRef,
    shape: Shape,
    /// None for kinds that are answered but never stored, such as reviews.
    pub state: Option<Arc<cache::Resource>>,
    pub custom: Option<Arc<crate::custom::CustomRules>>,
}

/// A built-in kind lives as long as the program, a custom one as long as its definition.
#[derive(Clone)]
pub enum KindRef {
    BuiltIn(&'static Kind),
    Custom(Arc<Kind>),
}

impl Deref for KindRef {
    type Target = Kind;

    fn deref(&self) -> &Kind {
        match self {
            KindRef::BuiltIn(kind) => kind,
            KindRef::Custom(kind) => kind,
        }
    }
}

#[derive(Clone)]
pub enum Shape {
    BuiltIn(TypeRef<'static>),
    Custom(Arc<Schemas>, TypeId),
}

impl Shape {
    fn get(&self) -> TypeRef<'_> {
        match self {
            Shape::BuiltIn(shape) => *shape,
            Shape::Custom(schemas, id) => TypeRef { schemas, id: *id },
        }
    }
}

impl Resource {
    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        GroupResource { group: self.kind.group, resource: self.kind.plural }
    }

    /// The shape of the version that was asked for.
    pub fn shape(&self) -> TypeRef<'_> {
        self.shape.get()
    }

    pub fn state(&self) -> Result<&Arc<cache::Resource>, Status> {
        self.state.as_ref().ok_or_else(Status::method_not_allowed)
    }

    /// The storage key of an object; a name that cannot be one is refused here, whatever the verb.
    pub fn key(&self, namespace: &str, name: &str) -> Result<String, Status> {
        for text in [namespace, name] {
            let problems = path_segment_problems(text);
            if !problems.is_empty() {
                return Err(Status::bad_request(format!(
                    "invalid resource name \"{text}\": [{}]",
                    problems.join(", ")
                )));
            }
        }
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        if self.kind.namespaced() {
            if namespace.is_empty() {
                return Err(Status::bad_request("Namespace parameter required."));
            }
            return Ok(format!("{}{namespace}/{name}", self.prefix("")));
        }
        Ok(format!("{}{name}", self.prefix("")))
    }

    /// The prefix of all keys, or of those in one namespace.
    pub fn prefix(&self, namespace: &str) -> String {
        match namespace {
            "" => format!("/registry/{}/", self.kind.storage),
            _ if !self.kind.namespaced() => format!("/registry/{}/", self.kind.storage),
            _ => format!("/registry/{}/{namespace}/", self.kind.storage),
        }
    }

    /// The object in the version that was asked for, with its resourceVersion.
    pub fn decode(&self, item: &Item) -> Result<Value, Status> {
        let stored = decode_stored(&item.value, item.revision.0)
            .map_err(|why| Status::internal(format!("cannot decode {}: {why}", item.key)))?;
        Ok(self.to_requested(stored))
    }

    /// A stored object as this version shows it; copied only where the versions differ.
    pub fn shown<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        if self.kind.convert.is_some() || self.custom.is_some() {
            Cow::Owned(self.to_requested(stored.clone()))
        } else {
            Cow::Borrowed(stored)
        }
    }

    pub(crate) fn to_requested(&self, object: Value) -> Value {
        match (&self.custom, &self.kind.convert) {
            (Some(custom), _) => custom.to_requested(object),
            (None, Some(convert)) => (convert.from_storage)(object),
            (None, None) => object,
        }
    }

    pub fn to_storage(&self, object: Value) -> Value {
        match (&self.custom, &self.kind.convert) {
            (Some(custom), _) => custom.to_storage(object),
            (None, Some(convert)) => (convert.to_storage)(object),
            (None, None) => object,
        }
    }

    /// Whether a webhook brings objects of this kind from one version into another. Those stay in the version that was
    /// asked for until they are stored: rules and schemas are about that one.
    pub fn converts(&self) -> bool {
        self.converter().is_some()
    }

    fn converter(&self) -> Option<(&CustomRules, &Converter)> {
        let custom = self.custom.as_deref()?;
        Some((custom, custom.converter.as_ref()?))
    }

    /// Objects of any version in the one that was asked for, where it may take asking somebody else.
    pub(crate) async fn show_all(&self, app: &App, mut objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let Some((custom, converter)) = self.converter() else {
            return Ok(objects.into_iter().map(|object| self.to_requested(object)).collect());
        };
        objects = objects.into_iter().map(|object| custom.read(object)).collect();
        objects = converter.convert(app, objects, custom.versions().0).await?;
        Ok(objects.into_iter().map(|object| custom.converted(object)).collect())
    }

    pub async fn show(&self, app: &App, object: Value) -> Result<Value, Status> {
        if self.converts() {
            Ok(self.show_all(app, vec![object]).await?.pop().unwrap_or_default())
        } else {
            Ok(self.to_requested(object))
        }
    }

    /// An object of the version that was asked for as it is stored, where it may take asking somebody else.
    pub async fn keep(&self, app: &App, object: Value) -> Result<Value, Status> {
        match self.converter() {
            Some((custom, converter)) => {
                let objects = converter.convert(app, vec![object], custom.versions().1).await?;
                Ok(objects.into_iter().next().unwrap_or_default())
            }
            None => Ok(self.to_storage(object)),
        }
    }

    /// An object as the write path works on it, before it is stored.
    pub(crate) fn to_work(&self, object: Value) -> Value {
        if self.converts() { object } else { self.to_storage(object) }
    }

    /// An object of the write path as it is stored.
    pub async fn finish(&self, app: &App, object: Value) -> Result<Value, Status> {
        let mut object = if self.converts() { self.keep(app, object).await? } else { object };
        if let Some(custom) = &self.custom {
            custom.default_stored(&mut object);
        }
        Ok(object)
    }

    /// A stored object as it would be stored today. Custom objects may be older than their definition's schema.
    pub(crate) fn as_of_today(&self, object: Value) -> Value {
        match &self.custom {
            Some(custom) => custom.to_storage(custom.to_requested(object)),
            None => object,
        }
    }

    /// Whether an object of that revision is sent as it is stored.
    pub(crate) fn as_stored(&self, revision: u64) -> bool {
        match &self.custom {
            Some(custom) => custom.as_stored(revision),
            None => self.kind.convert.is_none(),
        }
    }

    /// The place of a field in the descriptions of stored objects, where selectors may name it.
    pub fn selectable(&self, field: &str) -> Option<usize> {
        match &self.custom {
            Some(custom) => custom.selectable(field),
            None => self.kind.selectable.iter().position(|entry| entry.field == field),
        }
    }
}

/// A stored value as an object that carries its revision.
pub(crate) fn decode_stored(value: &Bytes, revision: u64) -> serde_json::Result<Value> {
    let mut object: Value = serde_json::from_slice(value)?;
    machinery::object::Meta::meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    Ok(object)
}

/// The same for a write, with the sets of its managed fields as texts: most writes do not look into them. Those of custom objects
/// are what they are, because other servers convert such objects.
pub(crate) fn decode_for_write(resource: &Resource, value: &Bytes, revision: u64) -> serde_json::Result<Value> {
    if resource.custom.is_some() {
        return decode_stored(value, revision);
    }
    let Ok(decoded) = machinery::codec::decode_json_packed(value) else {
        // It has the words for what is wrong.
        return decode_stored(value, revision);
    };
    let mut object = decoded.value;
    machinery::object::Meta::meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    Ok(object)
}

fn path_segment_problems(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    let found = ['/', '%'].into_iter().filter(|sign| text.contains(*sign));
    found.map(|sign| format!("may not contain '{sign}'")).collect()
}

/// An immutable view of everything served; a change makes a new one.
#[derive(Default, Clone)]
pub struct Table {
    resources: Vec<Arc<Resource>>,
    /// Where the resources of a plural name stand; few share one.
    index: HashMap<Box<str>, Vec<usize>>,
    /// What is served and shown nowhere; nothing takes its place.
    hidden: Vec<Arc<Resource>>,
}

impl Table {
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let is_it = |kind: &Kind| kind.plural == plural && kind.group == group && kind.version == version;
        let hidden = self.hidden.iter().find(|resource| is_it(&resource.kind));
        hidden.or_else(|| self.position(group, version, plural).map(|index| &self.resources[index]))
    }

    /// By kind rather than plural name.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| {
            resource.kind.group == group && resource.kind.version == version && resource.kind.kind == kind
        })
    }

    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    pub fn with(&self, resource: Arc<Resource>) -> Table {
        let mut table = self.clone();
        let kind = &resource.kind;
        match table.position(kind.group, kind.version, kind.plural) {
            Some(index) => table.resources[index] = resource.clone(),
            None => {
                table.index.entry(kind.plural.into()).or_default().push(table.resources.len());
                table.resources.push(resource.clone());
            }
        }
        table
    }

    fn position(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        let mut named = self.index.get(plural)?.iter().copied();
        named.find(|index| {
            let kind = &self.resources[*index].kind;
            kind.group == group && kind.version == version
        })
    }

    /// Without those, and with these instead; a kind that is built in stays what it is. One pass, however many change.
    pub fn changed(&self, gone: impl Fn(&Resource) -> bool, added: Vec<Arc<Resource>>) -> Table {
        let kept = self.resources.iter().filter(|resource| !gone(resource)).cloned();
        let mut table = Table { hidden: self.hidden.clone(), ..Table::default() };
        for resource in kept.chain(added) {
            let kind = &resource.kind;
            if table.position(kind.group, kind.version, kind.plural).is_none() {
                table.index.entry(kind.plural.into()).or_default().push(table.resources.len());
                table.resources.push(resource);
            }
        }
        table
    }
}

/// Every built-in kind that is to be served, with its state loaded from the store.
pub async fn built_in(cache: &Cache, config: &RuntimeConfig) -> Result<Table, store::StoreError> {
    let mut table = Table::default();
    for kind in api::every_kind().filter(|kind| config.serves(kind)) {
        table = table.with(served(kind, kind, cache).await?);
    }
    for kind in reduced::KINDS {
        // With fewer fields an object is still of the same type.
        table.hidden.push(served(kind, stored_kind(kind), cache).await?);
    }
    Ok(table)
}

async fn served(kind: &'static Kind, typed: &'static Kind, cache: &Cache) -> Result<Arc<Resource>, store::StoreError> {
    let stored = stored_kind(kind);
    let state = match kind.storage {
        "" => None,
        storage => Some(cache.register(storage, describe::describe(KindRef::BuiltIn(stored))).await?),
    };
    Ok(Arc::new(Resource {
        kind: KindRef::BuiltIn(kind),
        stored: KindRef::BuiltIn(stored),
        shape: Shape::BuiltIn(schema::type_of(typed)),
        state,
        custom: None,
    }))
}

fn stored_kind(kind: &'static Kind) -> &'static Kind {
    let Some(convert) = &kind.convert else { return kind };
    let stored = api::every_kind()
        .find(|other| other.group == convert.group && other.version == convert.version && other.kind == kind.kind);
    stored.expect("a converted kind's stored version is in the table")
}

/// A custom kind, as made by `custom.rs`.
pub fn custom(
    kind: Kind,
    schemas: Schemas,
    id: TypeId,
    rules: crate::custom::CustomRules,
    state: Arc<cache::Resource>,
) -> Resource {
    let kind = KindRef::Custom(Arc::new(kind));
    let shape = Shape::Custom(Arc::new(schemas), id);
    Resource { stored: kind.clone(), kind, shape, state: Some(state), custom: Some(Arc::new(rules)) }
}
