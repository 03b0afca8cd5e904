//! The events of one object, newest first.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::raw::{self, AsyncTell, Change};
use super::{Asked, Context};
use crate::event::time;

const EVENTS_MAX: usize = 200;

pub(super) async fn run(context: Context, asked: Asked) {
    let selector = if asked.uid.is_empty() {
        format!("involvedObject.name={}", asked.name)
    } else {
        format!("involvedObject.uid={}", asked.uid)
    };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("fieldSelector", &selector).finish();
    let kind = crate::kinds::Kind::new("", "v1", "events");
    let path = format!("{}?{query}", crate::ask::path(&kind, &asked.namespace, ""));
    let mut told = Told { context: context.clone(), events: HashMap::new() };
    raw::follow(&context.signed_in.client, &path, &mut told).await;
}

struct Told {
    context: Context,
    events: HashMap<String, Value>,
}

#[async_trait::async_trait]
impl AsyncTell for Told {
    async fn tell(&mut self, change: Change) -> bool {
        let name = |event: &Value| event["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        match change {
            Change::All(events) => self.events = events.into_iter().map(|event| (name(&event), event)).collect(),
            Change::Put(event) => _ = self.events.insert(name(&event), event),
            // Events end by themselves after a while; the page may still say what was.
            Change::Gone(event) => _ = self.events.remove(&name(&event)),
            // A right that is missing is asked for again when the page looks again.
            Change::Failed(status) => return self.context.fail(&status).await && status.code != 403,
        }
        let mut newest: Vec<&Value> = self.events.values().collect();
        newest.sort_by(|one, other| time(other).cmp(time(one)));
        newest.truncate(EVENTS_MAX);
        self.context.tell(json!({"events": newest})).await
    }
}
