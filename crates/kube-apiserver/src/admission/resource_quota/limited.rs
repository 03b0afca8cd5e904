//! What may be used only where a quota covers it: `limitedResources` of the file of admission configuration.

use std::collections::BTreeSet;

use component_helpers::quota::devices::Classes;
use component_helpers::quota::scopes::{self, Selector};
use component_helpers::quota::usage;
use machinery::field::{Errors, FieldError, Problem};
use serde_json::Value;

use super::super::configuration::Part;
use super::super::pod_resources::Amounts;
use crate::configuration::{self, Header, Shape};

const HEADERS: [Header; 2] = [
    Header { kind: "Configuration", group: "resourcequota.admission.k8s.io", versions: &["v1beta1", "v1alpha1"] },
    Header { kind: "ResourceQuotaConfiguration", group: "apiserver.config.k8s.io", versions: &["v1"] },
];
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "limitedResources",
        Shape::List(&Shape::Object(&[
            ("apiGroup", Shape::Text),
            ("resource", Shape::Text),
            ("matchContains", Shape::List(&Shape::Text)),
            (
                "matchScopes",
                Shape::List(&Shape::Object(&[
                    ("scopeName", Shape::Text),
                    ("operator", Shape::Text),
                    ("values", Shape::List(&Shape::Text)),
                ])),
            ),
        ])),
    ),
]);

#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    group: String,
    resource: String,
    /// Parts of the names of what is used, such as `.storageclass.storage.k8s.io/requests.storage`.
    contains: Vec<String>,
    /// What is in one of these scopes must be in that scope of a quota.
    scopes: Vec<Selector>,
}

pub fn read(part: &Part<'_>) -> Result<Vec<Limited>, configuration::Error> {
    let value = part.read(&HEADERS, &SHAPE)?;
    let mut errors = Errors::default();
    let mut limited = Vec::new();
    for (index, entry) in value["limitedResources"].as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let at = format!("limitedResources[{index}]");
        if text("resource").is_empty() {
            errors.push(FieldError::new(Problem::Required, format!("{at}.resource"), "", ""));
        }
        let parts = entry["matchContains"].as_array().into_iter().flatten();
        let contains = parts.filter_map(Value::as_str).map(str::to_owned).collect();
        let scopes = entry["matchScopes"].as_array().into_iter().flatten().map(Selector::read).collect();
        limited.push(Limited { group: text("apiGroup"), resource: text("resource"), contains, scopes });
    }
    part.refuse(&errors)?;
    Ok(limited)
}

/// The names of what is used, must be covered by a quota, and is not.
pub(crate) fn uncovered(
    limited: &[Limited],
    (group, plural, classes): (&str, &str, &Classes),
    used: &Amounts,
    quotas: impl Iterator<Item = impl AsRef<Value>>,
) -> Vec<String> {
    let parts: Vec<&String> = limited
        .iter()
        .filter(|one| one.group == group && one.resource == plural)
        .flat_map(|one| &one.contains)
        .collect();
    // Only what is really used must be covered: every Service counts load balancers, most of them none.
    let taken = used.iter().filter(|(_, amount)| amount.sign() > 0).map(|(name, _)| name);
    let must: BTreeSet<&String> = taken.filter(|name| parts.iter().any(|part| name.contains(part.as_str()))).collect();
    if must.is_empty() {
        return Vec::new();
    }
    let covered: BTreeSet<String> = quotas
        .flat_map(|quota| usage::matching_names(group, plural, &quota.as_ref()["spec"]["hard"], classes))
        .collect();
    must.into_iter().filter(|name| !covered.contains(*name)).cloned().collect()
}

/// The scopes that the object is in, whatever resource they were named for, and no quota of the namespace covers for it.
pub(crate) fn uncovered_scopes<'a>(
    limited: &'a [Limited],
    (group, plural): (&str, &str),
    object: &Value,
    quotas: &[impl AsRef<Value>],
) -> Vec<&'a Selector> {
    let named = limited.iter().flat_map(|one| &one.scopes);
    let must: Vec<&Selector> = named.filter(|scope| scope.has(group, plural, object)).collect();
    if must.is_empty() {
        return must;
    }
    let of_quotas: Vec<Selector> = quotas.iter().flat_map(|quota| scopes::of_quota(quota.as_ref())).collect();
    let covers =
        |scope: &Selector| of_quotas.iter().any(|other| other.scope == scope.scope && other.has(group, plural, object));
    must.into_iter().filter(|scope| !covers(scope)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_limited_needs_a_quota_that_counts_it() {
        let limited = [Limited {
            group: String::new(),
            resource: "pods".into(),
            contains: vec!["requests.cpu".into()],
            scopes: Vec::new(),
        }];
        let used: Amounts = [("requests.cpu", 1), ("pods", 1), ("requests.cpu.none", 0)]
            .into_iter()
            .map(|(name, count)| (name.to_owned(), usage::number(count)))
            .collect();
        let quota = |name: &str| Arc::new(json!({"spec": {"hard": {name: "5"}}}));
        let none = Classes::default();
        let check =
            |plural: &str, quotas: Vec<Arc<Value>>| uncovered(&limited, ("", plural, &none), &used, quotas.into_iter());
        assert_eq!(check("pods", vec![]), ["requests.cpu"]);
        assert_eq!(check("pods", vec![quota("pods")]), ["requests.cpu"]);
        assert!(check("pods", vec![quota("pods"), quota("requests.cpu")]).is_empty());
        assert!(check("services", vec![]).is_empty());
    }

    /// The example of upstream's documentation: pods of a class only where a quota is for that class.
    #[test]
    fn a_scope_needs_a_quota_of_that_scope() {
        let term = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["cluster-services", "high"]});
        let scopes = vec![Selector::read(&term)];
        let limited = [Limited { group: String::new(), resource: "pods".into(), contains: Vec::new(), scopes }];
        let check = |class: &str, quotas: &[Arc<Value>]| {
            let pod = json!({"spec": {"priorityClassName": class}});
            let found = uncovered_scopes(&limited, ("", "pods"), &pod, quotas);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let quota = |term: Value| Arc::new(json!({"spec": {"scopeSelector": {"matchExpressions": [term]}}}));
        assert!(check("low", &[]).is_empty());
        assert_eq!(check("high", &[]), ["{PriorityClass In [cluster-services high]}"]);
        let other = quota(json!({"scopeName": "PriorityClass", "operator": "In", "values": ["cluster-services"]}));
        assert_eq!(check("high", std::slice::from_ref(&other)).len(), 1);
        assert!(check("high", &[other, quota(json!({"scopeName": "PriorityClass", "operator": "Exists"}))]).is_empty());
        let claim = uncovered_scopes(&limited, ("", "services"), &json!({}), &[] as &[Arc<Value>]);
        assert!(claim.is_empty());
    }
}
