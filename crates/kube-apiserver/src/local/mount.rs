//! Pages of this process that the server's listener also serves, below a path of their own. They are no part of the API:
//! who asks is found out by them, so requests come here before authentication.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::Request;

pub use crate::body::{Body, Sent};
pub use crate::respond::{Reply, text};
pub use crate::serve::Peer;

pub type Handler = Arc<dyn Fn(Peer, Request<Sent>) -> BoxFuture<'static, Reply> + Send + Sync>;

#[derive(Default)]
pub struct Mounts {
    all: ArcSwap<Vec<(&'static str, Handler)>>,
}

impl Mounts {
    /// Serves that path and everything below it from now on.
    pub fn mount(&self, path: &'static str, handler: Handler) {
        self.all.rcu(|all| {
            let others = all.iter().filter(|(known, _)| *known != path).cloned();
            others.chain([(path, handler.clone())]).collect::<Vec<_>>()
        });
    }

    pub fn of(&self, path: &str) -> Option<Handler> {
        let all = self.all.load();
        let below =
            |mounted: &str| path.strip_prefix(mounted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        all.iter().find(|(mounted, _)| below(mounted)).map(|(_, handler)| handler.clone())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_path_and_what_is_below_it() {
        let mounts = Mounts::default();
        mounts.mount("/page", Arc::new(|_, _| async { crate::respond::text(200, "here") }.boxed()));
        for (path, expected) in [("/page", true), ("/page/", true), ("/page/x", true), ("/pages", false), ("/", false)]
        {
            assert_eq!(mounts.of(path).is_some(), expected, "{path}");
        }
    }
}
