//! A watch as a stream of typed objects, for who keeps no copy of a kind. Lists, retries and lines are those of `watch`; only
//! decoding knows the type.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use component_base::tasks;
use futures::Stream;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tasks::Boxed;

use crate::decode::Keep;
use crate::watch::{Change, Taker, Watched, follow};

#[derive(Debug)]
pub enum Seen<K> {
    /// The watch begins, also anew: all objects follow as `Listed`.
    Listing,
    Listed(K),
    /// Whatever was not listed is not there.
    Complete,
    Put(K),
    Gone(K),
    /// The watch ended for this reason, and is tried again.
    Failed(String),
}

/// Never ends. It goes on only while it is polled, so that no more is kept than came in one piece.
pub struct Watching<K> {
    following: Boxed<()>,
    seen: Arc<Mutex<VecDeque<Seen<K>>>>,
}

impl<K: Resource + DeserializeOwned + Send + 'static> Watching<K> {
    pub fn new(client: Client, watched: Watched) -> Watching<K> {
        let seen = Arc::<Mutex<VecDeque<Seen<K>>>>::default();
        let mut queue = Queue(seen.clone());
        let following = tasks::boxed(async move { follow(client, watched, &mut queue).await });
        Watching { following, seen }
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static> Watching<K> {
    /// Those that a field selector names, of a namespace or of all.
    pub fn fields(client: Client, namespace: Option<&str>, fields: String) -> Watching<K> {
        Watching::new(client, Watched { fields, ..of::<K>(namespace) })
    }

    pub fn labels(client: Client, namespace: Option<&str>, labels: &str) -> Watching<K> {
        Watching::new(client, Watched { labels: labels.into(), ..of::<K>(namespace) })
    }
}

fn of<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> Watched {
    Watched { kind: K::kind(&()).into_owned(), path: K::url_path(&(), namespace), ..Watched::default() }
}

impl<K> Stream for Watching<K> {
    type Item = Seen<K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Seen<K>>> {
        if let Some(seen) = self.seen.lock().pop_front() {
            return Poll::Ready(Some(seen));
        }
        if self.following.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        match self.seen.lock().pop_front() {
            Some(seen) => Poll::Ready(Some(seen)),
            None => Poll::Pending,
        }
    }
}

struct Queue<K>(Arc<Mutex<VecDeque<Seen<K>>>>);

impl<K: Resource + DeserializeOwned + Send> Taker for Queue<K> {
    fn take(&mut self, change: Change<'_>) -> serde_json::Result<u64> {
        let (seen, text): (fn(K) -> Seen<K>, &str) = match change {
            Change::Listing => return self.put(Seen::Listing),
            Change::Complete => return self.put(Seen::Complete),
            Change::Listed(text) => (Seen::Listed, text),
            Change::Put(text) => (Seen::Put, text),
            Change::Gone(text) => (Seen::Gone, text),
        };
        let object: K = crate::decode::decode(text, Keep::Whole)?;
        let revision = object.meta().resource_version.as_deref().and_then(|version| version.parse().ok());
        self.put(seen(object))?;
        Ok(revision.unwrap_or(0))
    }

    fn failed(&mut self, _: &Watched, error: &str) {
        self.0.lock().push_back(Seen::Failed(error.to_owned()));
    }
}

impl<K> Queue<K> {
    fn put(&mut self, seen: Seen<K>) -> serde_json::Result<u64> {
        self.0.lock().push_back(seen);
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use testkit::{FakeApi, Fault};

    use super::*;

    fn shown(seen: Option<Seen<ConfigMap>>) -> String {
        let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
        match seen.expect("it never ends") {
            Seen::Listing => "listing".into(),
            Seen::Listed(map) => format!("listed {}", name(map)),
            Seen::Complete => "complete".into(),
            Seen::Put(map) => format!("put {}", name(map)),
            Seen::Gone(map) => format!("gone {}", name(map)),
            Seen::Failed(_) => "failed".into(),
        }
    }
    #[tokio::test(start_paused = true)]
    async fn it_lists_follows_and_tells_of_failures() {
        let api = FakeApi::default();
        let (client, link) = api.client();
        let path = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}");
        let map = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
        api.put(&path("a"), map("a"));
        link.set(Fault::Status(503));
        let mut watching = Watching::<ConfigMap>::fields(client, Some("default"), String::new());
        let first = tokio::time::timeout(Duration::from_secs(60), watching.next()).await.expect("it fails");
        assert_eq!(shown(first), "failed");
        link.set(Fault::None);
        for expected in ["listing", "listed a", "complete"] {
            // Until the server is asked again, it may fail once more.
            let mut seen = shown(watching.next().await);
            while seen == "failed" {
                seen = shown(watching.next().await);
            }
            assert_eq!(seen, expected);
        }
        api.put(&path("b"), map("b"));
        assert_eq!(shown(watching.next().await), "put b");
        api.remove(&path("a"));
        assert_eq!(shown(watching.next().await), "gone a");
    }
}
