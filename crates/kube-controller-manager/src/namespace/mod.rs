//! The end of a namespace: everything in it is deleted, pods first, and when nothing is left the namespace may go.

mod content;
mod plan;

use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use reconcile::{Error, Key, On, Plan, Rule, Work, Write};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller =
    Controller {
        name: "namespace-controller",
        account: "namespace-controller",
        source: "namespace-controller",
        rules: &[
            Rule { groups: &[""], resources: &["namespaces"], verbs: &["get", "list", "watch", "delete"] },
            Rule { groups: &[""], resources: &["namespaces/finalize", "namespaces/status"], verbs: &["update"] },
            Rule { groups: &["*"], resources: &["*"], verbs: &["get", "list", "watch", "delete", "deletecollection"] },
        ],
        work: Work::Keys {
            wakes: &[&On::every(|_, namespace: &Namespace| {
                if plan::is_ending(namespace) { vec![Key::of(&namespace.metadata)] } else { Vec::new() }
            })],
            workers_max: 10,
            reconcile: |cx, key| reconcile(cx, key).boxed(),
        },
    };

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(namespace) = cx.cache::<Namespace>().get(key).filter(|found| plan::is_ending(found)) else {
        return Ok(Plan::nothing());
    };
    let content = content::delete(&cx.client, &key.name).await?;
    let plan::Decision { status, next } = plan::decide(cx.now(), &namespace, &content);
    let namespace = match status {
        None => namespace,
        Some(status) => {
            let changed = Namespace { status: Some(status), ..Namespace::clone(&namespace) };
            let namespaces: Api<Namespace> = Api::all(cx.client.clone());
            let written = namespaces.replace_status(&key.name, &PostParams::default(), &changed).await;
            Arc::new(written.map_err(|error| Error::api(format!("update the status of namespace {key}"), error))?)
        }
    };
    match next {
        plan::Next::Wait(delay) => Ok(Plan::after(delay)),
        plan::Next::Fail(why) => Err(Error::Other(why)),
        plan::Next::Finalize => {
            Ok(Plan::one(Write::update_sub(&plan::finalized(&namespace), "finalize").accept(&["NotFound"])))
        }
    }
}
