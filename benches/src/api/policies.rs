//! What a write costs under admission policies, one that validates and one that mutates, beside none.

use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use serde_json::{Value, json};
use testkit::Server;

use crate::load::{Bounds, Connection, Protocol};
use crate::report;

use super::{ready_server, writes};

const CLIENTS: usize = 16;
const CREATES_MAX: usize = 20_000;
const RUN: Duration = Duration::from_secs(4);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

pub async fn costs() -> anyhow::Result<()> {
    for policy in ["none", "validating", "mutating"] {
        let server = ready_server().await?;
        match policy {
            "validating" => validating(&server).await?,
            "mutating" => mutating(&server).await?,
            _ => {}
        }
        let bounds = Bounds { requests_each_max: CREATES_MAX / CLIENTS, time_max: RUN };
        let outcome = writes::create(&server, Protocol::Http1, CLIENTS, bounds, policy).await?;
        let name = |what: &str| format!("create pods, policy {policy}: {what}");
        report::line(&name("rate"), outcome.per_second(), "/s");
        report::line(&name("latency p99"), outcome.latencies.ms(0.99), "ms");
        report::line(&name("processor time each"), outcome.cpu_ms_each(), "ms");
    }
    Ok(())
}

/// As many clusters have one: every container names its image by something else than `latest`.
async fn validating(server: &Server) -> anyhow::Result<()> {
    let spec = json!({
        "matchConstraints": pods(),
        "validations": [{
            "expression": "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
            "messageExpression": "'images must not be latest: ' + object.spec.containers.map(c, c.image).join(', ')",
        }],
    });
    let binding = json!({"policyName": "bench", "validationActions": ["Deny"]});
    make(server, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", spec).await?;
    make(server, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", binding).await
}

/// Adds a label to every pod.
async fn mutating(server: &Server) -> anyhow::Result<()> {
    let expression = "Object{metadata: Object.metadata{labels: {'bench': 'yes'}}}";
    let spec = json!({
        "matchConstraints": pods(),
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    });
    make(server, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", spec).await?;
    let binding = json!({"policyName": "bench"});
    make(server, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", binding).await
}

fn pods() -> Value {
    json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
    ]})
}

async fn make(server: &Server, kind: &str, plural: &str, spec: Value) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "bench"}, "spec": spec,
    });
    let mut connection = Connection::open(&server.client()?, Protocol::Http1).await?;
    let body = Bytes::from(object.to_string());
    match connection.send("POST", &format!("{GROUP}/{plural}"), "application/json", body).await?.0 {
        201 => Ok(()),
        code => bail!("{kind} was refused with {code}"),
    }
}
