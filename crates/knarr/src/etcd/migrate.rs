//! A server that kept its objects on its own disk takes them along when it begins to run etcd.

use std::path::Path;

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt};
use store::{Change, Entry, Expect, RangeRequest, Store, Written};

const AT_ONCE: usize = 64;
/// Events end by themselves, and when is not known here; they are left behind.
const EVENTS: &str = "/registry/events/";

/// Copies the store of that folder into `target`, once. Where it was interrupted it goes on.
pub async fn migrate(folder: &Path, target: &dyn Store) -> anyhow::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let config = store::embedded::Config::new(folder.to_owned());
    let source = tokio::task::spawn_blocking(move || store::embedded::EmbeddedStore::open(config)).await?;
    let source = source.context("open embedded store")?;
    let all = source.range(RangeRequest { prefix: "/".into(), after: None, limit: 0, at: None }).await?;
    let kept: Vec<Entry> = all.entries.into_iter().filter(|entry| !entry.key.starts_with(EVENTS)).collect();
    let count = kept.len();
    futures::stream::iter(kept)
        .map(|entry| copy(target, entry))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    drop(source);
    let aside = folder.with_extension("migrated");
    std::fs::rename(folder, &aside).with_context(|| format!("rename {}", folder.display()))?;
    tracing::info!(objects = count, old = %aside.display(), "migrated all objects to etcd");
    Ok(())
}

async fn copy(target: &dyn Store, entry: Entry) -> anyhow::Result<()> {
    let put = Change::Put { value: entry.value.clone(), ttl: None };
    match target.write_if(&entry.key, Expect::Absent, put).await? {
        Written::Done(_) => Ok(()),
        // An interrupted start wrote it.
        Written::Conflict(Some(there)) if there.value == entry.value => Ok(()),
        Written::Conflict(_) => bail!("{} already exists in etcd, with another value", entry.key),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    async fn open(folder: &Path) -> std::sync::Arc<store::embedded::EmbeddedStore> {
        store::embedded::EmbeddedStore::open(store::embedded::Config::new(folder.to_owned())).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn everything_but_events_is_taken_along_once() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("store"), folder.path().join("new"));
        let put = |text: &'static str| Change::Put { value: Bytes::from_static(text.as_bytes()), ttl: None };
        let source = open(&old).await;
        for (key, text) in
            [("/registry/pods/a/b", "pod"), ("/registry/events/a/b", "event"), ("/registry/x/y", "other")]
        {
            source.write_if(key, Expect::Absent, put(text)).await.unwrap();
        }
        drop(source);
        let target = open(&new).await;
        // As an interrupted start left it.
        target.write_if("/registry/x/y", Expect::Absent, put("other")).await.unwrap();
        migrate(&old, &*target).await.unwrap();
        let read = |key: &'static str| target.get(key);
        assert_eq!(read("/registry/pods/a/b").await.unwrap().unwrap().value, "pod");
        assert!(read("/registry/events/a/b").await.unwrap().is_none());
        assert!(!old.exists() && folder.path().join("store.migrated").is_dir());
        migrate(&old, &*target).await.unwrap();
    }
}
