//! Which objects of a resource a list, watch or collection delete is about: namespace, name, labels, fields.

use std::borrow::Cow;
use std::sync::Arc;

use machinery::jsonpath::pointer;
use machinery::selector::{FieldOperator, FieldSelector, LabelSelector, SelectorError};
use machinery::status::Status;
use serde_json::Value;
use store::cache::{Item, WatchScope};

use crate::app::App;
use crate::conversion::decode_stored;
use crate::query::Query;
use crate::resources::Resource;

pub struct Filter {
    /// All keys start with this.
    pub prefix: String,
    /// The very key, where the selector names one object of one namespace.
    key: Option<String>,
    labels: LabelSelector,
    fields: Vec<FieldRule>,
}

struct FieldRule {
    field: Field,
    equal: bool,
    value: Box<str>,
}

enum Field {
    Name,
    Namespace,
    /// The place in the kind's list of selectable fields.
    Selectable(usize),
    /// A field, as a JSON pointer, of the version that was asked for: where a webhook converts, stored objects do not tell.
    Converted(String),
}

fn unreadable(error: SelectorError) -> Status {
    Status::bad_request(error.to_string())
}

impl Filter {
    pub fn parse(resource: &Resource, namespace: &str, name: &str, query: &Query) -> Result<Filter, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector")).map_err(unreadable)?;
        let selector = FieldSelector::parse(query.get("fieldSelector")).map_err(unreadable)?;
        let mut fields = Vec::new();
        for requirement in selector.requirements() {
            let (name, operator, value) = requirement;
            let field = field(resource, name)?;
            fields.push(FieldRule { field, equal: *operator == FieldOperator::Equals, value: value.as_str().into() });
        }
        if !name.is_empty() {
            fields.push(FieldRule { field: Field::Name, equal: true, value: name.into() });
        }
        let prefix = resource.prefix(namespace);
        let exact = fields.iter().find(|rule| rule.equal && matches!(rule.field, Field::Name));
        let whole = exact.filter(|_| !resource.kind.namespaced() || !namespace.is_empty());
        let key = whole.map(|rule| format!("{prefix}{}", rule.value));
        Ok(Filter { prefix, key, labels, fields })
    }

    /// Whether anything but namespace and resource narrows the choice.
    pub fn selects(&self) -> bool {
        !self.fields.is_empty() || !self.labels.matches_everything()
    }

    pub fn scope(&self) -> WatchScope {
        let field = self.fields.iter().find_map(|rule| match rule.field {
            Field::Selectable(at) if rule.equal => Some((at, rule.value.clone())),
            _ => None,
        });
        // Who follows one object sees all its changes anyway.
        let field = field.filter(|_| self.key.is_none());
        WatchScope { key_prefix: Some(self.key.clone().unwrap_or_else(|| self.prefix.clone())), field }
    }

    /// The field by whose value the objects are found without looking at all of them: the node of pods, of which every kubelet
    /// asks for its own.
    pub fn indexed(&self, resource: &Resource) -> Option<(usize, &str)> {
        let at = resource.selectable("spec.nodeName").filter(|_| !self.is_late() && self.key.is_none())?;
        let rule =
            self.fields.iter().find(|rule| rule.equal && matches!(rule.field, Field::Selectable(one) if one == at))?;
        // Watchers are chosen by the first such field; both must mean the same one.
        let first = self.scope().field.is_some_and(|(first, _)| first == at);
        first.then_some((at, &rule.value))
    }

    /// The one key that can match, if the selector names it.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether only a converted object can tell if it is meant.
    pub(crate) fn is_late(&self) -> bool {
        self.fields.iter().any(|rule| matches!(rule.field, Field::Converted(_)))
    }

    /// The rest of `matches`, for an object in the version that was asked for.
    pub(crate) fn matches_converted(&self, object: &Value) -> bool {
        self.fields.iter().all(|rule| match &rule.field {
            Field::Converted(pointer) => (selected_text(object, pointer) == *rule.value) == rule.equal,
            _ => true,
        })
    }

    /// Of items that match as they are stored those that match once they are converted. One that cannot be decoded does not.
    pub async fn narrow(
        &self,
        app: &App,
        resource: &Resource,
        items: Vec<Arc<Item>>,
    ) -> Result<Vec<Arc<Item>>, Status> {
        if !self.is_late() {
            return Ok(items);
        }
        let decoded = items.into_iter().filter_map(|item| {
            let object = decode_stored(&item.value, item.revision.0).ok()?;
            Some((item, object))
        });
        let (items, objects): (Vec<_>, Vec<_>) = decoded.unzip();
        let shown = app.offload.run(resource.conversion.show_all(app, objects)).await?;
        let meant = items.into_iter().zip(&shown).filter(|(_, object)| self.matches_converted(object));
        Ok(meant.map(|(item, _)| item).collect())
    }

    pub fn matches(&self, item: &Item) -> bool {
        self.fields.iter().all(|rule| rule.matches(item))
            && (self.labels.matches_everything() || self.labels.matches(|key| label(item, key)))
    }
}

fn label<'a>(item: &'a Item, key: &str) -> Option<&'a str> {
    let labels = &item.description.labels;
    labels.iter().find(|(name, _)| name.as_ref() == key).map(|(_, value)| value.as_ref())
}

impl FieldRule {
    fn matches(&self, item: &Item) -> bool {
        let mut parts = item.key.rsplit('/');
        let (name, namespace) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let found = match &self.field {
            Field::Name => name,
            Field::Namespace => namespace,
            Field::Converted(_) => return true,
            Field::Selectable(index) => item.description.fields.get(*index).map_or("", |value| value.as_ref()),
        };
        (found == self.value.as_ref()) == self.equal
    }
}

/// A field as selectors compare it; one that is missing is empty.
pub(crate) fn selected_text<'a>(object: &'a Value, pointer: &str) -> Cow<'a, str> {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string().into(),
        _ => "".into(),
    }
}

fn field(resource: &Resource, name: &str) -> Result<Field, Status> {
    match name {
        "metadata.name" => return Ok(Field::Name),
        "metadata.namespace" if resource.kind.namespaced() => return Ok(Field::Namespace),
        _ => {}
    }
    match resource.selectable(name) {
        Some(_) if resource.conversion.asks_others() => Ok(Field::Converted(pointer(name))),
        Some(index) => Ok(Field::Selectable(index)),
        None if resource.custom.is_none() && resource.kind.selectable.is_empty() => Err(Status::bad_request(format!(
            "\"{name}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ))),
        None => Err(Status::bad_request(format!("field label not supported: {name}"))),
    }
}
