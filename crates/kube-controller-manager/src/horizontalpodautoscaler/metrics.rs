//! Asks the metrics APIs for what an autoscaler looks at.

use std::collections::BTreeMap;

use component_helpers::labels::compiled;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::error::{MetricsError, Source};
use super::replicas::Sample;
use super::scale::is_absent;

const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// What each pod uses of a resource: of one container, or of all.
pub(super) async fn resource(
    client: &Client,
    namespace: &str,
    selector: &str,
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, Sample>, MetricsError> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}", escaped(selector));
    let list = get(client, &path, Source::Resource, "pods.metrics.k8s.io").await?;
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return Err(MetricsError::Empty(Source::Resource));
    }
    let mut samples = BTreeMap::new();
    for item in items {
        let containers = item["containers"].as_array().map_or(&[][..], Vec::as_slice);
        let counted = containers.iter().filter(|one| container.is_none_or(|name| one["name"] == name));
        let used: Option<Vec<i64>> = counted.map(|one| milli(&one["usage"][resource])).collect();
        // A pod with a container that says nothing is missing as a whole.
        if let (Some(name), Some(used)) = (item["metadata"]["name"].as_str(), used.filter(|used| !used.is_empty())) {
            samples.insert(name.to_owned(), sample(item, used.iter().sum()));
        }
    }
    Ok(samples)
}

/// What each pod says of a metric of its own.
pub(super) async fn of_pods(
    client: &Client,
    namespace: &str,
    selector: &str,
    metric: &MetricIdentifier,
) -> Result<BTreeMap<String, Sample>, MetricsError> {
    let list = custom(client, namespace, "pods", "*", Some(selector), metric).await?;
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return Err(MetricsError::Empty(Source::Custom));
    }
    let named = items.iter().filter_map(|item| {
        Some((item["describedObject"]["name"].as_str()?.to_owned(), sample(item, milli(&item["value"])?)))
    });
    Ok(named.collect())
}

pub(super) async fn of_object(
    client: &Client,
    namespace: &str,
    plural: &str,
    object: &CrossVersionObjectReference,
    metric: &MetricIdentifier,
) -> Result<i64, MetricsError> {
    let list = custom(client, namespace, plural, &object.name, None, metric).await?;
    milli(&list["items"][0]["value"]).ok_or(MetricsError::Empty(Source::Custom))
}

/// The sum of all that the source tells.
pub(super) async fn external(client: &Client, namespace: &str, metric: &MetricIdentifier) -> Result<i64, MetricsError> {
    let (name, selector) = (&metric.name, written(metric.selector.as_ref()));
    let path = format!(
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}?labelSelector={}",
        escaped(&selector)
    );
    let list = get(client, &path, Source::External, &format!("{name}.external.metrics.k8s.io")).await?;
    let values: Vec<i64> =
        list["items"].as_array().into_iter().flatten().filter_map(|item| milli(&item["value"])).collect();
    if values.is_empty() { Err(MetricsError::Empty(Source::External)) } else { Ok(values.iter().sum()) }
}

async fn custom(
    client: &Client,
    namespace: &str,
    plural: &str,
    name: &str,
    selector: Option<&str>,
    metric: &MetricIdentifier,
) -> Result<Value, MetricsError> {
    let mut query = format!("metricLabelSelector={}", escaped(&written(metric.selector.as_ref())));
    if let Some(selector) = selector {
        query = format!("{query}&labelSelector={}", escaped(selector));
    }
    let metric = &metric.name;
    let path = format!("/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/{plural}/{name}/{metric}?{query}");
    get(client, &path, Source::Custom, &format!("{plural}.custom.metrics.k8s.io {name}")).await
}

async fn get(client: &Client, path: &str, api: Source, what: &str) -> Result<Value, MetricsError> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| MetricsError::Fetch { api, source: error.into() })?;
    client.request::<Value>(request).await.map_err(|error| {
        if is_absent(&error) {
            MetricsError::Absent { api, what: what.to_owned() }
        } else {
            MetricsError::Fetch { api, source: error.into() }
        }
    })
}

fn sample(item: &Value, milli: i64) -> Sample {
    let at = item["timestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH);
    let window = item["window"].as_str().and_then(|text| text.parse().ok());
    let seconds = item["windowSeconds"].as_i64().map(SignedDuration::from_secs);
    Sample { milli, at, window: window.or(seconds).unwrap_or(DEFAULT_WINDOW) }
}

pub(super) fn milli(value: &Value) -> Option<i64> {
    Quantity::from_value(value).ok().map(|quantity| quantity.milli_value())
}

/// A selector as queries have it; one that cannot be read selects by nothing.
fn written(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector.filter(|selector| compiled(Some(selector)).is_some()) else { return String::new() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let terms = selector.match_expressions.iter().flatten().map(|term| {
        let (key, values) = (&term.key, term.values.clone().unwrap_or_default().join(","));
        match term.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    labels.chain(terms).collect::<Vec<_>>().join(",")
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
