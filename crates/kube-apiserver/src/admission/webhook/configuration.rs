//! What the webhook configurations say, read once per change: by name of the configuration, then in their own order.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use machinery::kind::Kind;
use machinery::object::Meta;
use serde_json::Value;

use crate::admission::outside::conditions::Condition;
use crate::admission::outside::rules::Rule;
use crate::admission::outside::selectors::Selectors;
use crate::app::App;
use crate::authn::Objects;
use crate::webhooks::{Hook, HookError};

/// As the API's default.
const TIMEOUT_SECONDS: u64 = 10;

pub struct Webhook {
    /// Tells it from all others.
    pub id: String,
    pub configuration: String,
    pub name: String,
    /// How to reach it, or why nobody can.
    pub hook: Result<Hook, HookError>,
    pub rules: Vec<Rule>,
    /// Rules that name another version of the same objects count too.
    pub equivalent: bool,
    pub selectors: Selectors,
    pub conditions: Vec<Condition>,
    pub ignore_failure: bool,
    pub timeout: Duration,
    /// May be asked about what will not be written.
    pub dry_run: bool,
    /// Of the versions that it takes, the first that is known here.
    pub review_version: Option<&'static str>,
    /// Wants to be asked again when others changed the object behind it.
    pub reinvoke: bool,
}

pub struct Configurations {
    plural: &'static str,
    read: ArcSwap<Read>,
}

#[derive(Default)]
struct Read {
    /// The revision of the last change; none before the first look.
    seen: Option<u64>,
    webhooks: Arc<Vec<Arc<Webhook>>>,
}

impl Configurations {
    pub fn new(plural: &'static str) -> Configurations {
        Configurations { plural, read: ArcSwap::default() }
    }

    /// Whether a rule may be about that kind.
    pub fn names(&self, app: &App, kind: &Kind) -> bool {
        let named = |webhook: &Arc<Webhook>| webhook.rules.iter().any(|rule| rule.names(kind.group, kind.plural));
        self.current(app).iter().any(named)
    }

    pub fn current(&self, app: &App) -> Arc<Vec<Arc<Webhook>>> {
        let changed = app.views.last_changed(self.plural);
        let read = self.read.load();
        if read.seen == Some(changed) {
            return read.webhooks.clone();
        }
        // Sorted by name, as the cache is.
        let configurations = app.views.all(self.plural, "");
        let webhooks: Vec<Arc<Webhook>> =
            configurations.iter().flat_map(|one| webhooks_of(one)).map(Arc::new).collect();
        let webhooks = Arc::new(webhooks);
        self.read.store(Arc::new(Read { seen: Some(changed), webhooks: webhooks.clone() }));
        webhooks
    }
}

fn webhooks_of(configuration: &Value) -> impl Iterator<Item = Webhook> {
    let list = configuration["webhooks"].as_array().into_iter().flatten();
    list.map(move |webhook| {
        let text = |field: &str| webhook[field].as_str().unwrap_or("");
        let versions = webhook["admissionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Webhook {
            id: format!("{}/{}/{}", configuration.name(), configuration.uid(), text("name")),
            configuration: configuration.name().into(),
            name: text("name").into(),
            hook: Hook::of(&webhook["clientConfig"]),
            rules: Rule::all(&webhook["rules"]),
            equivalent: text("matchPolicy") != "Exact",
            selectors: Selectors::of(webhook),
            conditions: Condition::all(&webhook["matchConditions"]),
            ignore_failure: text("failurePolicy") == "Ignore",
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS)),
            dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            review_version: versions.filter_map(known).next(),
            reinvoke: text("reinvocationPolicy") == "IfNeeded",
        }
    })
}

fn known(version: &str) -> Option<&'static str> {
    ["v1", "v1beta1"].into_iter().find(|known| *known == version)
}
