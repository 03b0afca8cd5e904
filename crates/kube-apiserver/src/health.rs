//! `/healthz`, `/livez`, `/readyz`: named checks, each of which can be asked for by itself or left out.

use std::sync::atomic::{AtomicBool, Ordering};

use component_base::metrics::Slis;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::query::Query;
use crate::respond::{self, Reply};

#[derive(Default)]
pub struct Health {
    /// Objects that must be there from the first start are there.
    pub bootstrapped: AtomicBool,
    /// Cancelled when the server is told to stop: it is not ready any more.
    pub leaving: CancellationToken,
    /// Cancelled when it stops: it takes no more requests, and watches end. The same unless there is a delay.
    pub stopping: CancellationToken,
    pub slis: Slis,
}

/// What a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// That the server answers at all.
    Answers,
    /// That the store answers.
    Store,
    /// That all is done that comes before the first request: the steps of our start, whatever upstream calls them.
    Started,
    /// That it is not about to stop.
    Stays,
    /// That KMS plugins answer.
    Plugins,
}

/// Upstream's names of what a server does after its start, in its order. Ours does all of it before it answers anybody:
/// what these stand for is either done then or has failed the start.
const HOOKS: &[&str] = &[
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/aggregator-reload-proxy-client-cert",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The checks of an endpoint, in upstream's order.
fn checks(endpoint: &'static str, has_plugins: bool) -> Vec<(&'static str, Check)> {
    let mut checks = vec![("ping", Check::Answers), ("log", Check::Answers), ("etcd", Check::Store)];
    if endpoint == "readyz" {
        checks.push(("etcd-readiness", Check::Store));
    }
    // A server is not restarted because of a plugin.
    if has_plugins && endpoint != "livez" {
        checks.push(("kms-providers", Check::Plugins));
    }
    if endpoint == "readyz" {
        checks.push(("informer-sync", Check::Started));
    }
    checks.extend(HOOKS.iter().map(|name| (*name, Check::Started)));
    if endpoint == "readyz" {
        checks.push(("shutdown", Check::Stays));
    }
    checks
}

/// Answers a health path, or none where the path names no check.
pub async fn answer(app: &App, path: &str, query: &Query) -> Option<Reply> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let endpoint = match parts.next()? {
        "healthz" => "healthz",
        "livez" => "livez",
        "readyz" => "readyz",
        _ => return None,
    };
    let checks = checks(endpoint, app.encrypted.encryption().has_health_check());
    if let Some(name) = parts.next() {
        let (_, check) = checks.iter().find(|(known, _)| *known == name)?;
        return Some(match run(app, *check).await {
            Ok(()) => respond::text(200, "ok"),
            Err(why) => respond::text(500, format!("internal server error: {why}\n")),
        });
    }
    let excluded = query.all("exclude");
    let (mut report, mut failed) = (String::new(), Vec::new());
    for (name, check) in &checks {
        if excluded.contains(name) {
            report += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        let outcome = run(app, *check).await;
        app.health.slis.observe(name, endpoint, outcome.is_ok());
        match outcome {
            Ok(()) => report += &format!("[+]{name} ok\n"),
            Err(why) => {
                tracing::warn!(check = name, %why, "health check failed");
                report += &format!("[-]{name} failed: reason withheld\n");
                failed.push(*name);
            }
        }
    }
    if endpoint == "readyz" {
        report += &refused_files(app);
    }
    // Only people ask for the report, and they may have mistyped a name.
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks.iter().any(|(known, _)| known == *name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        report += &format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(","));
    }
    Some(if !failed.is_empty() {
        respond::text(500, format!("{report}{endpoint} check failed\n"))
    } else if query.has("verbose") {
        respond::text(200, format!("{report}{endpoint} check passed\n"))
    } else {
        respond::text(200, "ok")
    })
}

/// Files that were changed to something wrong. The server goes on with what it has, so it is ready all the same.
fn refused_files(app: &App) -> String {
    let reloads = [
        ("authentication-config", &app.authenticator.dynamic().reloads),
        ("authorization-config", &app.authorizer.reloads),
        ("encryption-provider-config", &app.encrypted.encryption().reloads),
    ];
    let wrong = reloads.into_iter().filter(|(_, reloads)| reloads.wrong().is_some());
    wrong.map(|(name, _)| format!("[+]{name} ok: the changed file is refused, the old one is in use\n")).collect()
}

/// Why a check fails.
#[derive(Debug, thiserror::Error)]
enum Unhealthy {
    #[error("not finished")]
    NotStarted,
    #[error("process is shutting down")]
    Stopping,
    #[error(transparent)]
    Store(#[from] store::StoreError),
    #[error("the store did not answer in time")]
    StoreTimeout,
    #[error(transparent)]
    Plugins(crate::encryption::PluginsUnwell),
}

/// Why a check fails, if it does. The store is asked for real; the rest are flags.
async fn run(app: &App, check: Check) -> Result<(), Unhealthy> {
    const STORE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
    match check {
        Check::Answers => Ok(()),
        Check::Started if app.health.bootstrapped.load(Ordering::Acquire) => Ok(()),
        Check::Started => Err(Unhealthy::NotStarted),
        Check::Stays if app.health.leaving.is_cancelled() => Err(Unhealthy::Stopping),
        Check::Stays => Ok(()),
        Check::Plugins => app.encrypted.encryption().health().await.map_err(Unhealthy::Plugins),
        Check::Store => match tokio::time::timeout(STORE_TIMEOUT, app.cache.store().revision()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Unhealthy::StoreTimeout),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What upstream's own test of these endpoints asks for.
    #[test]
    fn upstreams_checks_have_their_names() {
        for endpoint in ["healthz", "livez", "readyz"] {
            let names: Vec<&str> = checks(endpoint, false).into_iter().map(|(name, _)| name).collect();
            let with_plugins = checks(endpoint, true);
            assert_eq!(with_plugins.iter().any(|(name, _)| *name == "kms-providers"), endpoint != "livez");
            assert_eq!(with_plugins.len(), names.len() + usize::from(endpoint != "livez"));
            for name in ["ping", "log", "etcd", "autoregister-completion"] {
                assert!(names.contains(&name), "{endpoint} {name}");
            }
            for hook in [
                "start-apiserver-admission-initializer",
                "generic-apiserver-start-informers",
                "start-apiextensions-informers",
                "start-apiextensions-controllers",
                "crd-informer-synced",
                "bootstrap-controller",
                "start-system-namespaces-controller",
                "start-service-ip-repair-controllers",
                "scheduling/bootstrap-system-priority-classes",
                "start-cluster-authentication-info-controller",
                "start-kube-aggregator-informers",
                "apiservice-registration-controller",
                "apiservice-status-local-available-controller",
                "apiservice-status-remote-available-controller",
                "kube-apiserver-autoregistration",
                "apiservice-openapi-controller",
                "storage-readiness",
            ] {
                assert!(names.contains(&format!("poststarthook/{hook}").as_str()), "{endpoint} {hook}");
            }
            assert_eq!(names.contains(&"informer-sync"), endpoint == "readyz");
            assert_eq!(names.contains(&"shutdown"), endpoint == "readyz");
        }
    }
}
