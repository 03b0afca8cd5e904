//! The map of a namespace or of everything, drawn again when what is in it changes.

use std::time::Duration;

use futures::FutureExt;
use machinery::selector::LabelSelector;
use machinery::status::Status;
use serde_json::Value;

use super::{Asked, Context};
use crate::kinds::Kind;
use crate::map::{KINDS, Objects, draw};
use crate::table::Look;
use crate::table::row::each;

const PAUSE: Duration = Duration::from_secs(3);
/// Of each kind; a picture of more says nothing.
const OBJECTS_MAX: usize = 1000;

pub(super) async fn run(context: Context, asked: Asked) {
    if let Err(status) = follow(&context, &asked).await {
        context.fail(&status).await;
    }
}

async fn follow(context: &Context, asked: &Asked) -> Result<(), Status> {
    let labels = LabelSelector::parse(&asked.labels).map_err(|why| Status::bad_request(format!("labels: {why}")))?;
    // Tables say when something changed; the picture itself needs whole objects.
    let looks: Result<Vec<Look>, Status> = KINDS
        .iter()
        .map(|(group, version, resource, _)| {
            let namespace = if *resource == "nodes" { "" } else { &asked.namespace };
            context.dashboard.tables.look(&context.signed_in, &Kind::new(group, version, resource), namespace, "")
        })
        .collect();
    let looks = looks?;
    let mut last = Value::Null;
    loop {
        let mut changes: Vec<_> = looks.iter().map(Look::changes).collect();
        let (objects, more) = read(context, &asked.namespace).await?;
        let mut drawn = draw(&objects, &labels);
        if more {
            drawn["truncated"] = true.into();
        }
        if drawn != last {
            if !context.tell(drawn.clone()).await {
                return Ok(());
            }
            last = drawn;
        }
        tokio::time::sleep(PAUSE).await;
        let any = changes.iter_mut().map(|changes| changes.changed().boxed());
        futures::future::select_all(any).await.0.ok();
    }
}

/// Kinds that the user may not list are not drawn; where no pods may be listed there is no picture.
async fn read(context: &Context, namespace: &str) -> Result<(Objects, bool), Status> {
    let (mut objects, mut more) = (Objects::new(), false);
    for (group, version, resource, _) in KINDS {
        let namespace = if resource == "nodes" { "" } else { namespace };
        let path = crate::ask::path(&Kind::new(group, version, resource), namespace, "");
        match crate::ask::get(&context.signed_in.client, &format!("{path}?limit={OBJECTS_MAX}")).await {
            Ok(list) => {
                more |= list["metadata"]["continue"].as_str().is_some_and(|next| !next.is_empty());
                objects.insert(resource, each(&list["items"]).cloned().collect());
            }
            Err(status) if resource == "pods" => return Err(status),
            Err(_) => {}
        }
    }
    Ok((objects, more))
}
