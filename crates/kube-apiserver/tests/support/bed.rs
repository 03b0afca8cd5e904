//! A real server on an embedded store, asked as its administrator without a socket between.

#[path = "config.rs"]
mod config;

use std::sync::Arc;

use kube_apiserver::local::Loopback;
use store::Store;
use store::embedded::{Config as StoreConfig, EmbeddedStore};
use tokio_util::sync::CancellationToken;

pub struct Bed {
    _folder: tempfile::TempDir,
    shutdown: CancellationToken,
    pub loopback: Loopback,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Bed {
    pub async fn start() -> Bed {
        Bed::start_with(Default::default()).await
    }

    pub async fn start_with(options: kube_apiserver::options::Options) -> Bed {
        // Another test of this process may have done it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder for the test");
        let store: Arc<dyn Store> =
            EmbeddedStore::open(StoreConfig::new(folder.path().join("store"))).expect("an empty store opens");
        Bed::over(store, folder, options).await
    }

    /// Over a store that holds something already.
    pub async fn over(
        store: Arc<dyn Store>,
        folder: tempfile::TempDir,
        options: kube_apiserver::options::Options,
    ) -> Bed {
        // Another test of this process may have done it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let shutdown = CancellationToken::new();
        let config = kube_apiserver::Config { options, ..config::config(folder.path().join("server")) };
        let running = kube_apiserver::start(config, store, shutdown.clone()).await.expect("the server starts");
        let loopback = Loopback::administrator(running.app.clone(), "test");
        Bed { _folder: folder, shutdown, loopback }
    }
}
