//! Admission: what else must hold, or is filled in, before a write. One file per plugin, one visible list.
//!
//! Plugins run in the order of `plugins()`: the rules that users bring, webhooks and policies, behind our own, and before
//! quota, which must be last because it counts.

use std::any::Any;

use component_base::metrics::Page;
use component_helpers::quota::pod_resources;
use machinery::kind::Kind;
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use self::times::{Step, Timed, Times};
use crate::app::App;
use crate::authn::User;
use crate::call::Call;
use crate::options::Options;
use crate::resources::Resource;
use crate::write::Part;

mod admin_access;
mod always;
mod always_pull_images;
mod certificates;
mod choice;
mod configuration;
mod default_classes;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
mod extended_resource_toleration;
mod image_policy;
mod limit_pod_anti_affinity;
mod limit_ranger;
mod namespace_lifecycle;
mod namespace_provision;
mod node_restriction;
mod outside;
mod owner_references;
mod param_access;
mod pod_certificates;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod policy;
mod priority;
mod privileged;
mod claim_status;
mod rbac_escalation;
mod resource_quota;
mod rounds;
mod runtime_class;
mod secrets;
mod service_account;
mod storage_protection;
mod taint_nodes_by_condition;
mod times;
mod webhook;

use choice::is_on;
pub(crate) use choice::on_and_off;
pub use choice::{is_on_demand, names};
pub use configuration::{Configuration, Error as ConfigurationError, load};
pub use webhook::metrics::Webhooks as WebhookMetrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// What is about to happen.
pub struct Request<'a> {
    pub app: &'a App,
    pub call: &'a Call,
    pub user: &'a User,
    pub operation: Operation,
    pub resource: &'a Resource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// What is stored now, for updates and deletes.
    pub old: Option<&'a Value>,
    pub dry_run: bool,
    /// The options of the request, where they are not those of its query.
    pub options: Option<Value>,
    rounds: Mutex<rounds::Rounds>,
    /// What plugins have set aside for this write. It is theirs for as long as the request lives.
    held: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl<'a> Request<'a> {
    pub fn create(call: &'a Call, resource: &'a Resource, namespace: &'a str, dry_run: bool) -> Request<'a> {
        Request::new(call, resource, Operation::Create, namespace, "", None, dry_run)
    }

    pub fn update(call: &'a Call, resource: &'a Resource, old: &'a Value, part: Part, dry_run: bool) -> Request<'a> {
        let request = Request::of(call, resource, Operation::Update, old, dry_run);
        Request { subresource: part.subresource(), ..request }
    }

    /// A subresource that is created, such as a token: `parent` is the object that it belongs to.
    pub(crate) fn create_of(
        call: &'a Call,
        resource: &'a Resource,
        parent: &'a Value,
        subresource: &'a str,
        dry_run: bool,
    ) -> Request<'a> {
        let request = Request::of(call, resource, Operation::Create, parent, dry_run);
        Request { subresource, ..request }
    }

    pub fn delete(call: &'a Call, resource: &'a Resource, old: &'a Value, dry_run: bool) -> Request<'a> {
        Request::of(call, resource, Operation::Delete, old, dry_run)
    }

    /// A connection to something: `options` is what is asked of it.
    pub fn connect(call: &'a Call, options: &Value) -> Request<'a> {
        let target = &call.target;
        let request =
            Request::new(call, &call.resource, Operation::Connect, &target.namespace, &target.name, None, false);
        Request { subresource: &target.subresource, options: Some(options.clone()), ..request }
    }

    fn of(call: &'a Call, resource: &'a Resource, operation: Operation, old: &'a Value, dry_run: bool) -> Request<'a> {
        use machinery::object::Meta;
        Request::new(call, resource, operation, old.namespace(), old.name(), Some(old), dry_run)
    }

    fn new(
        call: &'a Call,
        resource: &'a Resource,
        operation: Operation,
        namespace: &'a str,
        name: &'a str,
        old: Option<&'a Value>,
        dry_run: bool,
    ) -> Request<'a> {
        let (app, user) = (call.app.as_ref(), &call.user);
        Request {
            app,
            call,
            user,
            operation,
            resource,
            subresource: "",
            namespace,
            name,
            old,
            dry_run,
            options: None,
            rounds: Mutex::default(),
            held: Mutex::default(),
        }
    }

    /// Keeps something until the write is over.
    pub fn hold<T: Any + Send>(&self, thing: T) {
        self.held.lock().push(Box::new(thing));
    }

    /// Takes back all that was kept of that type.
    pub fn held<T: Any + Send>(&self) -> Vec<T> {
        let mut held = self.held.lock();
        let (mine, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut *held).into_iter().partition(|thing| thing.is::<T>());
        *held = rest;
        mine.into_iter().filter_map(|thing| thing.downcast().ok()).map(|thing| *thing).collect()
    }

    /// Whether this is about that resource itself, not a subresource of it.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.is_for(group, plural)
    }

    /// Whether this is about that resource or any subresource of it.
    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.resource.kind.group == group && self.resource.kind.plural == plural
    }

    /// 403 with the name as far as it is known: an object that is still to be named goes by its prefix.
    pub fn forbidden(&self, object: Option<&Value>, why: impl std::fmt::Display) -> Status {
        use machinery::object::Meta;
        let text = |field: &str| object.and_then(|object| object.meta(field)?.as_str()).unwrap_or("");
        let names = [self.name, text("name"), text("generateName"), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("");
        Status::forbidden(self.resource.group_resource(), name, &why.to_string())
    }
}

/// One admission plugin. Both parts default to having no opinion.
#[async_trait::async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether it stands for rules that users bring. Only those are about connections, and about what is sent to
    /// subresources that are no part of their object.
    fn is_outside(&self) -> bool {
        false
    }

    /// Whether somebody else may be asked over the network about writes of that kind.
    fn asks_others(&self, _app: &App, _kind: &Kind) -> bool {
        false
    }

    /// May change the object. Runs before the object is prepared and validated.
    async fn mutate(&self, _request: &Request<'_>, _object: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// May refuse. `object` is what will be stored; none for a delete.
    async fn validate(&self, _request: &Request<'_>, _object: Option<&Value>) -> Result<(), Status> {
        Ok(())
    }

    /// The write that was admitted did not take place: what was set aside for it is free again.
    async fn give_back(&self, _request: &Request<'_>) {}
}

pub struct Admission {
    plugins: Vec<Timed>,
    steps: Times,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission::new(&Default::default())
    }
}

/// Every plugin, in the order they run.
fn plugins(options: &Options) -> Vec<Box<dyn Plugin>> {
    let mut plugins = first(options);
    plugins.extend(on_storage_and_devices());
    plugins.extend(last(options));
    plugins
}

/// Namespaces, accounts, nodes, images, and what pods may do and tolerate.
fn first(options: &Options) -> Vec<Box<dyn Plugin>> {
    let told = options.admission.clone();
    vec![
        Box::new(always::AlwaysAdmit),
        Box::new(namespace_provision::NamespaceAutoProvision),
        Box::new(namespace_lifecycle::NamespaceLifecycle),
        Box::new(namespace_provision::NamespaceExists),
        Box::new(limit_pod_anti_affinity::LimitPodHardAntiAffinityTopology),
        Box::new(limit_ranger::LimitRanger),
        Box::new(service_account::ServiceAccount),
        Box::new(node_restriction::NodeRestriction),
        Box::new(taint_nodes_by_condition::TaintNodesByCondition),
        Box::new(always_pull_images::AlwaysPullImages),
        Box::new(image_policy::ImagePolicyWebhook::new(told.image_policy)),
        Box::new(pod_security::PodSecurity { settings: told.pod_security }),
        Box::new(pod_node_selector::PodNodeSelector { settings: told.node_selectors }),
        Box::new(priority::Priority),
        Box::new(default_toleration_seconds::DefaultTolerationSeconds),
        Box::new(pod_toleration_restriction::PodTolerationRestriction { settings: told.tolerations }),
        Box::new(event_rate_limit::EventRateLimit::new(told.event_rate_limit.as_deref().unwrap_or_default())),
        Box::new(extended_resource_toleration::ExtendedResourceToleration),
    ]
}

fn on_storage_and_devices() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(default_classes::DefaultStorageClass),
        Box::new(storage_protection::StorageObjectInUseProtection),
        Box::new(owner_references::OwnerReferencesPermissionEnforcement),
        Box::new(storage_protection::PersistentVolumeClaimResize),
        Box::new(runtime_class::RuntimeClass),
        Box::new(certificates::CertificateApproval),
        Box::new(certificates::CertificateSigning),
        Box::new(certificates::ClusterTrustBundleAttest),
        Box::new(certificates::CertificateSubjectRestriction),
        Box::new(default_classes::DefaultIngressClass),
        Box::new(deny_service_external_ips::DenyServiceExternalIps),
        Box::new(pod_topology_labels::PodTopologyLabels),
        Box::new(pod_resize::PodResizeValidator),
    ]
}

/// What upstream asks elsewhere, the rules that users bring, quota, which counts, and at the end the one that denies.
fn last(options: &Options) -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(rbac_escalation::RbacEscalation),
        Box::new(admin_access::AdminAccess),
        Box::new(pod_certificates::PodCertificates),
        Box::new(claim_status::ClaimStatus),
        Box::new(param_access::ParamAccess),
        Box::new(privileged::Privileged { allowed: options.allow_privileged }),
        Box::new(policy::Mutating::default()),
        Box::new(webhook::Mutating::default()),
        Box::new(policy::Validating::default()),
        Box::new(webhook::Validating::default()),
        Box::new(resource_quota::ResourceQuota::new(options.admission.limited_resources.clone())),
        Box::new(always::AlwaysDeny),
    ]
}

/// Whether objects of this kind are rules for the writes of others.
pub(crate) fn governs(kind: &Kind) -> bool {
    match kind.group {
        "" => matches!(kind.plural, "namespaces" | "resourcequotas" | "limitranges" | "serviceaccounts"),
        "scheduling.k8s.io" => kind.plural == "priorityclasses",
        "storage.k8s.io" => kind.plural == "storageclasses",
        "networking.k8s.io" => kind.plural == "ingressclasses",
        outside::GROUP => true,
        _ => false,
    }
}

impl Admission {
    pub fn new(options: &Options) -> Admission {
        let mut plugins = plugins(options);
        plugins.retain(|plugin| is_on(options, plugin.name()));
        Admission { plugins: plugins.into_iter().map(Timed::new).collect(), steps: Times::default() }
    }

    pub(crate) fn render(&self, page: &mut Page) {
        let mut family = page.family(&times::PLUGINS);
        self.plugins.iter().for_each(|timed| timed.times.write(&mut family, Some(timed.plugin.name())));
        self.steps.write(&mut page.family(&times::STEP), None);
    }

    /// Whether a write of that kind may wait for somebody else's answer.
    pub(crate) fn asks_others(&self, app: &App, kind: &Kind) -> bool {
        self.plugins.iter().any(|timed| timed.plugin.asks_others(app, kind))
    }

    pub async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        self.rounds(request, object, |_| true).await
    }

    /// For what is sent to a subresource that is no part of its object, such as an eviction.
    pub(crate) async fn mutate_sent(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        self.rounds(request, object, |plugin| plugin.is_outside()).await
    }

    /// Whether that connection may be made. What is asked of it stays what it is.
    pub async fn connect(&self, request: &Request<'_>, options: &Value) -> Result<(), Status> {
        self.rounds(request, &mut options.clone(), |plugin| plugin.is_outside()).await?;
        self.judge(request, Some(options), |plugin| plugin.is_outside()).await
    }

    async fn rounds(
        &self,
        request: &Request<'_>,
        object: &mut Value,
        which: fn(&dyn Plugin) -> bool,
    ) -> Result<(), Status> {
        let began = Instant::now();
        let mut outcome = self.round(request, object, which).await;
        // Somebody outside changed the object behind plugins that had looked at it already: all look once more, as upstream.
        if outcome.is_ok() && std::mem::take(&mut request.rounds.lock().wanted) {
            request.rounds.lock().again = true;
            outcome = self.round(request, object, which).await;
        }
        self.steps.observe(Step::Admit, request.operation, outcome.is_err(), began.elapsed());
        outcome
    }

    async fn round(
        &self,
        request: &Request<'_>,
        object: &mut Value,
        which: fn(&dyn Plugin) -> bool,
    ) -> Result<(), Status> {
        let mut began = Instant::now();
        for timed in self.plugins.iter().filter(|timed| which(timed.plugin.as_ref())) {
            let outcome = timed.plugin.mutate(request, object).await;
            began = timed.ended(Step::Admit, request.operation, outcome.is_err(), began);
            outcome?;
        }
        Ok(())
    }

    pub async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        self.judge(request, object, |_| true).await
    }

    async fn judge(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        which: fn(&dyn Plugin) -> bool,
    ) -> Result<(), Status> {
        let first = Instant::now();
        let mut began = first;
        let mut outcome = Ok(());
        for timed in self.plugins.iter().filter(|timed| which(timed.plugin.as_ref())) {
            outcome = timed.plugin.validate(request, object).await;
            began = timed.ended(Step::Validate, request.operation, outcome.is_err(), began);
            if outcome.is_err() {
                break;
            }
        }
        self.steps.observe(Step::Validate, request.operation, outcome.is_err(), first.elapsed());
        outcome
    }

    /// To be called when a write that was admitted surely did not take place.
    pub async fn give_back(&self, request: &Request<'_>) {
        for timed in &self.plugins {
            timed.plugin.give_back(request).await;
        }
    }
}
