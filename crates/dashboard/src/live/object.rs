//! One object, as it is now and whenever it changes.

use std::time::Duration;

use serde_json::{Value, json};

use super::raw::{self, AsyncTell, Change};
use super::{Asked, Context};

/// Who may get an object but not list it is answered so often.
const POLL: Duration = Duration::from_secs(5);

pub(super) async fn run(context: Context, asked: Asked) {
    let path = crate::ask::path(&asked.resource, &asked.namespace, &asked.name);
    let first = crate::ask::get(&context.signed_in.client, &path).await;
    let shown = match &first {
        Ok(object) => context.tell(json!({"object": object, "type": "ADDED"})).await,
        Err(status) if status.code == 404 => context.tell(json!({"object": null, "type": "DELETED"})).await,
        Err(status) => {
            context.fail(status).await;
            return;
        }
    };
    if !shown {
        return;
    }
    let selector = form_urlencoded::Serializer::new(String::new())
        .append_pair("fieldSelector", &format!("metadata.name={}", asked.name))
        .finish();
    let list = format!("{}?{selector}", crate::ask::path(&asked.resource, &asked.namespace, ""));
    let shown = first.unwrap_or_default();
    let mut told = Told { context: context.clone(), shown, path, polls: false, disconnected: false };
    raw::follow(&context.signed_in.client, &list, &mut told).await;
    if told.polls {
        told.poll().await;
    }
}

struct Told {
    context: Context,
    /// What the page has.
    shown: Value,
    path: String,
    polls: bool,
    /// What the page was told last.
    disconnected: bool,
}

impl Told {
    async fn state(&mut self, disconnected: bool) -> bool {
        if std::mem::replace(&mut self.disconnected, disconnected) == disconnected {
            return true;
        }
        let state = if disconnected { "disconnected" } else { "connected" };
        self.context.tell(json!({"state": state})).await
    }

    async fn show(&mut self, object: Value) -> bool {
        let same = |field: &str| self.shown["metadata"][field] == object["metadata"][field];
        if same("uid") && same("resourceVersion") {
            return true;
        }
        let kind = match (self.shown.is_null(), object.is_null()) {
            (true, true) => return true,
            (true, false) => "ADDED",
            (false, true) => "DELETED",
            (false, false) => "MODIFIED",
        };
        self.shown = object;
        self.context.tell(json!({"object": self.shown, "type": kind})).await
    }

    async fn poll(mut self) {
        loop {
            tokio::time::sleep(POLL).await;
            let shown = match crate::ask::get(&self.context.signed_in.client, &self.path).await {
                Ok(object) => self.show(object).await,
                Err(status) if status.code == 404 => self.show(Value::Null).await,
                Err(status) => self.context.fail(&status).await,
            };
            if !shown {
                return;
            }
        }
    }
}

#[async_trait::async_trait]
impl AsyncTell for Told {
    async fn tell(&mut self, change: Change) -> bool {
        if !matches!(change, Change::Failed(_)) && !self.state(false).await {
            return false;
        }
        match change {
            Change::All(mut objects) => {
                // Items of a list do not say what they are; what was got does, and so does the next change.
                let object = objects.pop().unwrap_or_default();
                if object["metadata"]["resourceVersion"] == self.shown["metadata"]["resourceVersion"] {
                    return true;
                }
                if object.is_null() {
                    return self.show(Value::Null).await;
                }
                match crate::ask::get(&self.context.signed_in.client, &self.path).await {
                    Ok(object) => self.show(object).await,
                    Err(_) => true,
                }
            }
            Change::Put(object) => self.show(object).await,
            Change::Gone(_) => self.show(Value::Null).await,
            Change::Failed(status) if matches!(status.code, 403 | 405) => {
                self.polls = true;
                false
            }
            Change::Failed(_) => self.state(true).await,
        }
    }
}
