//! The one table of what is served: built-in kinds from the start, custom kinds while running.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use api::schema;
use machinery::kind::Kind;
use machinery::schema::{Schemas, TypeId, TypeRef};
use machinery::status::{GroupResource, Status};
use store::cache::{self, Cache};

use crate::conversion::Conversion;
use crate::custom::CustomRules;
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
    pub custom: Option<Arc<CustomRules>>,
    pub conversion: Conversion,
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

    /// The place of a field in the descriptions of stored objects, where selectors may name it.
    pub fn selectable(&self, field: &str) -> Option<usize> {
        match &self.custom {
            Some(custom) => custom.selectable(field),
            None => self.kind.selectable.iter().position(|entry| entry.field == field),
        }
    }
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
        conversion: kind.convert.as_ref().map_or(Conversion::None, Conversion::BuiltIn),
    }))
}

fn stored_kind(kind: &'static Kind) -> &'static Kind {
    let Some(convert) = &kind.convert else { return kind };
    let stored = api::every_kind()
        .find(|other| other.group == convert.group && other.version == convert.version && other.kind == kind.kind);
    stored.expect("a converted kind's stored version is in the table")
}

/// A custom kind, as made by `custom.rs`.
pub fn custom(kind: Kind, schemas: Schemas, id: TypeId, rules: CustomRules, state: Arc<cache::Resource>) -> Resource {
    let kind = KindRef::Custom(Arc::new(kind));
    let shape = Shape::Custom(Arc::new(schemas), id);
    let rules = Arc::new(rules);
    let conversion = Conversion::Custom(rules.clone());
    Resource { stored: kind.clone(), kind, shape, state: Some(state), custom: Some(rules), conversion }
}
