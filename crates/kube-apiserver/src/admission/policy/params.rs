//! The parameters of a binding: objects of the policy's kind, by name or by label.

use std::sync::Arc;

use machinery::selector::{LabelSelector, SelectorError};
use machinery::status::Status;
use serde_json::Value;

use super::configuration::{Binding, Policy};
use crate::admission::outside::Seen;
use crate::conversion::decode_stored;

/// Why a binding has no parameters.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    #[error("paramKind kind `{api_version}, Kind={kind}` not known")]
    UnknownKind { api_version: String, kind: String },
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    Namespace,
    #[error(transparent)]
    Selector(#[from] SelectorError),
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    /// The binding or its parameters cannot be read.
    #[error("{}", .0.message)]
    Refused(Status),
}

/// Each is evaluated by itself; null is no parameter. None at all means that there is nothing to evaluate.
pub async fn find(seen: &Seen<'_>, policy: &Policy, binding: &Binding) -> Result<Vec<Value>, ParamsError> {
    let reference = &binding.param_ref;
    let (Some((api_version, kind)), true) = (&policy.param_kind, reference.is_object()) else {
        return Ok(vec![Value::Null]);
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let app = seen.request.app;
    let unknown = || ParamsError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() };
    let resource = app.table.load().of_kind(group, version, kind).cloned().ok_or_else(unknown)?;
    let state = resource.state.as_ref().ok_or_else(unknown)?;
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    let namespace = match (resource.kind.namespaced(), text("namespace")) {
        (true, "") if seen.namespace.is_empty() => {
            return Err(ParamsError::NoNamespace);
        }
        (true, "") => seen.namespace.as_str(),
        (false, given) if !given.is_empty() => {
            return Err(ParamsError::Namespace);
        }
        (_, given) => given,
    };
    let found: Vec<Value> = match text("name") {
        "" => {
            let selector = LabelSelector::from_object(&reference["selector"])?;
            let prefix = resource.prefix(namespace);
            let items = state.snapshot().items;
            let from: Arc<str> = prefix.as_str().into();
            let here = items.range(from..).take_while(|(key, _)| key.starts_with(&prefix));
            let objects = here.filter_map(|(_, item)| decode_stored(&item.value, item.revision.0).ok());
            objects.filter(|object| selector.matches_object(object)).collect()
        }
        name => {
            let key = resource.key(namespace, name).map_err(ParamsError::Refused)?;
            state.get(&key).and_then(|item| decode_stored(&item.value, item.revision.0).ok()).into_iter().collect()
        }
    };
    if found.is_empty() && text("parameterNotFoundAction") == "Deny" {
        return Err(ParamsError::NotFound);
    }
    resource.conversion.show_all(app, found).await.map_err(ParamsError::Refused)
}
