//! Versions that are served only where `--runtime-config` asks for them: in discovery, converted, stored once.

#[path = "support/bed.rs"]
mod bed;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bed::Bed;
use bytes::Bytes;
use component_base::features::Gates;
use http::Request;
use http_body_util::{BodyExt, Full};
use jiff::SignedDuration;
use kube_apiserver::options::{Options, RuntimeConfig};
use serde_json::{Value, json};
use tower::Service;

const SLICES: &str = "/apis/resource.k8s.io";

impl Bed {
    async fn send(&self, method: &str, path: &str, media: &str, body: Value) -> (u16, Value, Vec<String>) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let reply = self.loopback.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap();
        let code = reply.status().as_u16();
        let warnings =
            reply.headers().get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        let object = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        (code, object, warnings)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let (code, object, _) = self.send("GET", path, "application/json", Value::Null).await;
        (code, object)
    }

    async fn as_user(&self, user: &str, method: &str, path: &str, media: &str, body: Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.header("impersonate-user", user).body(Full::new(body.to_string().into())).unwrap();
        let reply = self.loopback.clone().call(request).await.unwrap();
        let code = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).expect("an object"))
    }

    /// The server makes its APIServices once it has started.
    async fn until_there(&self, path: &str) -> Value {
        let asked = async {
            loop {
                let (code, object) = self.get(path).await;
                if code == 200 {
                    return object;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap_or_else(|_| panic!("{path} is never there"))
    }

    async fn post(&self, path: &str, object: Value) -> Value {
        let (code, object, _) = self.send("POST", path, "application/json", object).await;
        assert_eq!(code, 201, "{object}");
        object
    }
}

async fn started(runtime: &str, gates: &str) -> Bed {
    let open = [
        "ClusterTrustBundle",
        "ClusterTrustBundleProjection",
        "ContainerStopSignals",
        "PodCertificateRequest",
        "StorageVersionMigrator",
    ];
    let gates = Gates::parse(gates, &open).expect("gates that are known");
    let runtime = RuntimeConfig::parse(runtime, gates).expect("a good configuration");
    Bed::start_with(Options { runtime, ..Options::default() }).await
}

fn versions(group: &Value) -> Vec<&str> {
    group["versions"].as_array().into_iter().flatten().filter_map(|version| version["version"].as_str()).collect()
}

#[tokio::test]
async fn nothing_is_there_unasked() {
    let bed = Bed::start().await;
    for path in
        ["/apis/resource.k8s.io/v1beta1", "/apis/certificates.k8s.io/v1beta1", "/apis/coordination.k8s.io/v1beta1"]
    {
        assert_eq!(bed.get(path).await.0, 404, "{path}");
    }
    assert_eq!(versions(&bed.get(SLICES).await.1), ["v1"]);
}

#[tokio::test]
async fn an_older_version_shows_the_same_objects_in_its_own_shape() {
    let bed = started("resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true", "").await;
    let group = bed.get(SLICES).await.1;
    assert_eq!(versions(&group), ["v1", "v1beta2", "v1beta1"]);
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let service = bed.until_there("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.resource.k8s.io").await;
    assert_eq!(service["spec"]["versionPriority"], 9, "{service}");
    let document = bed.get("/openapi/v3/apis/resource.k8s.io/v1beta1").await.1;
    assert!(document["components"]["schemas"]["io.k8s.api.resource.v1beta1.BasicDevice"].is_object());

    let slice = json!({
        "apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "one", "basic": {"attributes": {"model": {"string": "x"}}}}],
        },
    });
    let made = bed.post(&format!("{SLICES}/v1beta1/resourceslices"), slice).await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]["devices"][0]["basic"]["attributes"]["model"]["string"]),
        (&json!("resource.k8s.io/v1beta1"), &json!("x"))
    );
    let newest = bed.get(&format!("{SLICES}/v1/resourceslices/s")).await.1;
    assert_eq!(newest["spec"]["devices"][0], json!({"name": "one", "attributes": {"model": {"string": "x"}}}));
    assert_eq!(newest["metadata"]["uid"], made["metadata"]["uid"]);
    let list = bed.get(&format!("{SLICES}/v1beta2/resourceslices")).await.1;
    assert_eq!((&list["apiVersion"], list["items"].as_array().unwrap().len()), (&json!("resource.k8s.io/v1beta2"), 1));

    // A patch of the older shape changes the one object that there is.
    let patch = json!({"spec": {"devices": [{"name": "one", "basic": {"attributes": {"model": {"string": "y"}}}}]}});
    let path = format!("{SLICES}/v1beta1/resourceslices/s");
    let (code, patched, warnings) = bed.send("PATCH", &path, "application/merge-patch+json", patch).await;
    assert_eq!(code, 200, "{patched}");
    let warning = "299 - \"resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+\"";
    assert_eq!(warnings, [warning]);
    let newest = bed.get(&format!("{SLICES}/v1/resourceslices/s")).await.1;
    assert_eq!(newest["spec"]["devices"][0]["attributes"]["model"]["string"], "y");
    let (_, text) = bed.get("/metrics").await;
    let line = "apiserver_requested_deprecated_apis{group=\"resource.k8s.io\",removed_release=\"1.38\",resource=\"resourceslices\",subresource=\"\",version=\"v1beta1\"} 1";
    assert!(text.as_str().unwrap_or_default().contains(line), "{text}");
}

#[tokio::test]
async fn claims_get_their_defaults_in_either_shape() {
    let bed = started("resource.k8s.io/v1beta1=true", "").await;
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "k"}]}},
    });
    let claims = |version: &str| format!("{SLICES}/{version}/namespaces/default/resourceclaims");
    let made = bed.post(&claims("v1beta1"), claim).await;
    let expected = json!({"name": "r", "deviceClassName": "k", "allocationMode": "ExactCount", "count": 1});
    assert_eq!(made["spec"]["devices"]["requests"][0], expected);
    let newest = bed.get(&format!("{}/c", claims("v1"))).await.1;
    let exactly = json!({"deviceClassName": "k", "allocationMode": "ExactCount", "count": 1});
    assert_eq!(newest["spec"]["devices"]["requests"][0], json!({"name": "r", "exactly": exactly}));
}

#[tokio::test]
async fn trust_bundles_need_their_gate() {
    let bundles = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    let closed = started("certificates.k8s.io/v1beta1=true", "").await;
    assert_eq!(closed.get(bundles).await.0, 404);
    let open = started("certificates.k8s.io/v1beta1=true", "ClusterTrustBundle=true").await;
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": {"name": "roots"},
        "spec": {"trustBundle": include_str!("../../api/src/certificates/clustertrustbundle/testdata/authority.pem")},
    });
    open.post(bundles, bundle).await;
    let selected = open.get(&format!("{bundles}?fieldSelector=spec.signerName%3D")).await.1;
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1), "{selected}");
    let other = open.get(&format!("{bundles}?fieldSelector=spec.signerName%3Dexample.com/a")).await.1;
    assert_eq!(other["items"].as_array().map(Vec::len), Some(0), "{other}");
}

/// A request of a pod for a certificate, and how a signer answers it.
#[tokio::test]
async fn certificates_of_pods_are_signed_by_who_may() {
    let requests = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    assert_eq!(started("certificates.k8s.io/v1beta1=true", "").await.get(requests).await.0, 404);
    let bed = started("certificates.k8s.io/v1beta1=true", "PodCertificateRequest=true").await;
    let key = rcgen::KeyPair::generate().expect("a key");
    let stub = rcgen::CertificateParams::default().serialize_request(&key).expect("a request").der().to_vec();
    let asked = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest", "metadata": {"name": "r"},
        "spec": {
            "signerName": "example.com/mesh", "podName": "p", "podUID": "1", "serviceAccountName": "default",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "stubPKCS10Request": STANDARD.encode(stub),
        },
    });
    let made = bed.post(requests, asked).await;
    assert_eq!((&made["spec"]["maxExpirationSeconds"], &made["spec"]["pkixPublicKey"]), (&json!(86_400), &Value::Null));
    let selected = bed.get(&format!("{requests}?fieldSelector=spec.nodeName%3Dn")).await.1;
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1), "{selected}");

    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).expect("a time");
    let issued = |from: jiff::Timestamp| {
        let mut params = rcgen::CertificateParams::default();
        let at = |time: jiff::Timestamp| std::time::SystemTime::from(time).into();
        let (until, refresh) = (from + SignedDuration::from_hours(10), from + SignedDuration::from_hours(5));
        (params.not_before, params.not_after) = (at(from), at(until));
        let chain = params.self_signed(&key).expect("a certificate").pem();
        json!({"status": {
            "conditions": [{"type": "Issued", "status": "True", "reason": "R", "message": "", "lastTransitionTime": now.to_string()}],
            "certificateChain": chain, "notBefore": from.to_string(), "notAfter": until.to_string(),
            "beginRefreshAt": refresh.to_string(),
        }})
    };
    let path = format!("{requests}/r/status");
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["podcertificaterequests/status"], "verbs": ["patch"]});
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "w"}, "rules": [rule]});
    bed.post(&format!("{roles}/clusterroles"), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "w"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "w"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    bed.post(&format!("{roles}/clusterrolebindings"), binding).await;
    let merge = "application/merge-patch+json";
    let (mut code, mut refused) = (403, Value::Null);
    // Until the authorizer has seen the binding.
    for _ in 0..500 {
        (code, refused) = bed.as_user("bob", "PATCH", &path, merge, issued(now)).await;
        if code != 403 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let why = "PodCertificateRequest.certificates.k8s.io \"r\" is invalid: spec.signerName: Forbidden: User \"bob\" is not \
               permitted to \"sign\" for signer \"example.com/mesh\"";
    assert_eq!((code, refused["message"].as_str().unwrap_or("")), (422, why));
    let (code, refused, _) = bed.send("PATCH", &path, merge, issued(now - SignedDuration::from_mins(6))).await;
    assert_eq!(code, 422, "{refused}");
    let told = refused["message"].as_str().unwrap_or("");
    assert!(told.ends_with("must be set to within 5 minutes of kube-apiserver's current time"), "{told}");
    let (code, signed, _) = bed.send("PATCH", &path, merge, issued(now)).await;
    assert_eq!((code, &signed["status"]["conditions"][0]["type"]), (200, &json!("Issued")), "{signed}");
    let denied = json!({"status": {"certificateChain": "x"}});
    assert_eq!(bed.send("PATCH", &path, merge, denied).await.0, 422, "what is decided stays");
}

#[tokio::test]
async fn migrations_are_stored_and_shown() {
    let migrations = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    let group = "storagemigration.k8s.io/v1beta1=true";
    assert_eq!(started(group, "").await.get(migrations).await.0, 404);
    let bed = started(group, "StorageVersionMigrator=true").await;
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration", "metadata": {"name": "m"},
        "spec": {"resource": {"group": "", "resource": "secrets"}},
    });
    let made = bed.post(migrations, migration).await;
    assert_eq!(
        (&made["spec"]["resource"], &made["status"]),
        (&json!({"group": "", "resource": "secrets"}), &json!({}))
    );
    let (code, refused, _) = bed
        .send(
            "PATCH",
            &format!("{migrations}/m"),
            "application/merge-patch+json",
            json!({"spec": {"resource": {"resource": "pods"}}}),
        )
        .await;
    assert_eq!(code, 422, "{refused}");
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:storage-version-migrator-controller";
    assert_eq!(bed.get(role).await.0, 200);
}

/// Upstream does not refuse what it would not do: it drops the field, and keeps one that is stored already.
#[tokio::test]
async fn fields_of_closed_gates_are_dropped() {
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}}],
            "volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}}],
            "os": {"name": "linux"},
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let closed = started("", "").await.post(path, deployment.clone()).await;
    assert_eq!(closed.pointer("/spec/template/spec/containers/0/lifecycle"), None, "{closed}");
    assert_eq!(closed["spec"]["template"]["spec"]["volumes"][0]["projected"]["sources"], json!([{}]), "{closed}");
    let gates = "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,ContainerStopSignals=true";
    let open = started("", gates).await.post(path, deployment).await;
    let spec = &open["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["lifecycle"]["stopSignal"], "SIGUSR1", "{open}");
    assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["clusterTrustBundle"]["name"], "b", "{open}");
}

#[tokio::test]
async fn what_is_turned_off_is_gone_from_everywhere() {
    let bed = started("batch/v1/cronjobs=false", "").await;
    assert_eq!(bed.get("/apis/batch/v1/cronjobs").await.0, 404);
    assert_eq!(bed.get("/apis/batch/v1/jobs").await.0, 200);
    let list = bed.get("/apis/batch/v1").await.1;
    let names: Vec<&str> = list["resources"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["jobs", "jobs/status"]);
}

/// Families that alerts and dashboards read; one that is missing is noticed here.
#[tokio::test]
async fn every_family_of_the_list_is_there() {
    let bed = started("", "").await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    bed.post("/api/v1/namespaces/default/configmaps", map).await;
    let (_, text) = bed.get("/metrics").await;
    let text = text.as_str().unwrap_or_default();
    let missing: Vec<&str> = include_str!("testdata/families.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|family| !text.contains(&format!("# TYPE {family}\n")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
    for line in [
        "etcd_requests_total{operation=\"create\",type=\"configmaps\"} ",
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"NamespaceLifecycle\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} ",
        "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"false\",type=\"validate\"} ",
        "kubernetes_feature_enabled{name=\"ClusterTrustBundle\",stage=\"BETA\"} 0",
    ] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}");
    }
}
