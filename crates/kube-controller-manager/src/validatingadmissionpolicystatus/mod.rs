//! Says of a ValidatingAdmissionPolicy that its expressions were looked at, and which of them name what there is not
//! or mix types.

mod plan;
mod shapes;
mod custom;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use parking_lot::Mutex;
use reconcile::{Key, On, Plan, Rule, Work};
use serde_json::Value;

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "validatingadmissionpolicy-status-controller",
    account: "validatingadmissionpolicy-status-controller",
    source: "validatingadmissionpolicy-status-controller",
    rules: &[
        Rule {
            groups: &["admissionregistration.k8s.io"],
            resources: &["validatingadmissionpolicies"],
            verbs: &["get", "list", "watch"],
        },
        Rule {
            groups: &["admissionregistration.k8s.io"],
            resources: &["validatingadmissionpolicies/status"],
            verbs: &["get", "patch", "update"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[&On::every(|_, policy: &ValidatingAdmissionPolicy| vec![Key::of(&policy.metadata)])],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// Schemas of the built-in kinds that policies look at. They are the same for every policy.
#[derive(Default)]
struct Known(Mutex<HashMap<plan::Looked, Option<Arc<Value>>>>);

/// More kinds than most clusters have policies for; beyond, they are made anew each time.
const KNOWN_MAX: usize = 64;

impl Known {
    fn schema(&self, kind: &plan::Looked) -> Option<Arc<Value>> {
        if let Some(known) = self.0.lock().get(kind) {
            return known.clone();
        }
        let made = shapes::of(&kind.group, &kind.version, &kind.kind).map(Arc::new);
        let mut known = self.0.lock();
        if known.len() < KNOWN_MAX {
            known.insert(kind.clone(), made.clone());
        }
        made
    }
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(policy) = cx.cache::<ValidatingAdmissionPolicy>().get(key) else { return Ok(Plan::nothing()) };
    if plan::is_checked(&policy) {
        return Ok(Plan::nothing());
    }
    Ok(plan::plan(&policy, &schemas(cx, &policy).await))
}

/// The schemas of the kinds that a policy names, where they can be had.
async fn schemas(cx: &Context, policy: &ValidatingAdmissionPolicy) -> BTreeMap<plan::Looked, Arc<Value>> {
    let mut found = BTreeMap::new();
    for resource in plan::resources(policy) {
        if found.len() == plan::KINDS_MAX {
            break;
        }
        let looked = |kind: &str| plan::Looked {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: kind.to_owned(),
        };
        if let Some(kind) = shapes::kind_of(&resource.group, &resource.version, &resource.plural) {
            let kind = looked(kind);
            found.extend(cx.memory::<Known>().schema(&kind).map(|schema| (kind, schema)));
        } else if let Some((kind, schema)) = custom::of(&cx.client, &resource).await {
            found.insert(looked(&kind), Arc::new(schema));
        }
    }
    found
}
