//! Why an autoscaler cannot say how many replicas there should be. Users read these texts in conditions and events, so the cause is a part
//! of them, as it is upstream.

use reconcile::Key;

use super::monitor::Fault;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("{}", said(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Body(#[from] serde_json::Error),
    #[error("no matches for kind {kind:?} in version {version:?}")]
    NoKind { kind: String, version: String },
}

/// What the server said, in its own words.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// One of the metrics APIs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Resource,
    Custom,
    External,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Resource => "resource",
            Source::Custom => "custom",
            Source::External => "external",
        })
    }
}

/// What a metrics API does not tell.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetricsError {
    #[error("unable to fetch metrics from {api} metrics API: {source}")]
    Fetch { api: Source, source: ApiError },
    #[error(
        "unable to fetch metrics from {api} metrics API: the server could not find the requested resource (get {what})"
    )]
    Absent { api: Source, what: String },
    #[error("no metrics returned from {0} metrics API")]
    Empty(Source),
}

/// Why the number of replicas cannot be computed from what was measured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReplicasError {
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoMetrics,
    #[error("no metrics returned matched known pods")]
    NoneKnown,
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    NoRequest { resource: String, container: String, pod: String },
}

/// Why one metric of an autoscaler asks for nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetricError {
    #[error("failed to get {resource} {word}: unable to get metrics for resource {resource}: {source}")]
    Resource { resource: String, word: &'static str, source: MetricsError },
    #[error("failed to get {resource} {word}: {source}")]
    ResourceReplicas { resource: String, word: &'static str, source: ReplicasError },
    #[error("failed to get pods metric value: unable to get metric {name}: {source}")]
    Pods { name: String, source: MetricsError },
    #[error("failed to get pods metric value: {0}")]
    PodsReplicas(#[source] ReplicasError),
    #[error(transparent)]
    ObjectKind(ApiError),
    #[error(
        "failed to get object metric value: unable to get metric {name}: {kind} on {} {}/{source}",
        .object.namespace, .object.name
    )]
    Object { name: String, kind: String, object: Key, source: MetricsError },
    #[error("failed to get {name} external metric value: unable to get external metric {namespace}/{name}: {source}")]
    External { name: String, namespace: String, source: MetricsError },
    #[error("unknown metric source type {0:?}")]
    Unknown(String),
}

impl MetricError {
    /// Only a type that there is not is the autoscaler's own fault, as upstream counts it.
    pub fn fault(&self) -> Fault {
        match self {
            MetricError::Unknown(_) => Fault::Spec,
            _ => Fault::Internal,
        }
    }
}
