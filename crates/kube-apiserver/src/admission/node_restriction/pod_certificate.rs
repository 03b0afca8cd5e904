//! Certificates that a kubelet asks for: for itself in no way, and for pods only as they run on its node now.

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::super::{Operation, Request};
use super::MIRROR;

pub(super) fn check(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Status> {
    let refuse = |why: String| request.forbidden(object, why);
    if request.operation != Operation::Create {
        let word = format!("{:?}", request.operation).to_uppercase();
        return Err(refuse(format!("unexpected operation {word}")));
    }
    if !request.subresource.is_empty() {
        return Err(refuse(format!("unexpected subresource {}", request.subresource)));
    }
    let none = Value::Null;
    let spec = object.map_or(&none, |object| &object["spec"]);
    let text = |field: &str| spec[field].as_str().unwrap_or("");
    let views = &request.app.views;
    let one = |plural: &str, name: &str| views.one(plural, request.namespace, name);
    let found = Found {
        node: views.one("nodes", "", node).as_deref().cloned(),
        pod: one("pods", text("podName")).as_deref().cloned(),
        account: one("serviceaccounts", text("serviceAccountName")).as_deref().cloned(),
    };
    match judge(node, request.namespace, spec, &found) {
        Ok(()) => Ok(()),
        Err(Refused::For(why)) => Err(refuse(why)),
        // What the server has not seen yet may be there when it is asked again.
        Err(Refused::Now(why)) => Err(Status::new(500, "", why)),
    }
}

/// What is there under the names of the request.
struct Found {
    node: Option<Value>,
    pod: Option<Value>,
    account: Option<Value>,
}

#[derive(Debug, PartialEq)]
enum Refused {
    For(String),
    Now(String),
}

fn judge(node: &str, namespace: &str, spec: &Value, found: &Found) -> Result<(), Refused> {
    let text = |field: &str| spec[field].as_str().unwrap_or("");
    let pod_name = format!("{namespace}/{}", text("podName"));
    let absent = |what: &str, shown: &str, plural: &str, name: &str| {
        Refused::Now(format!(
            "while retrieving {what} {shown:?} named in the PodCertificateRequest: {plural} {name:?} not found"
        ))
    };
    if text("nodeName") != node {
        return Err(Refused::For(format!(
            "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}",
            text("nodeName")
        )));
    }
    let own = found.node.as_ref().ok_or_else(|| absent("node", node, "node", node))?;
    if own.uid() != text("nodeUID") {
        return Err(Refused::Now(format!(
            "PodCertificateRequest for pod {pod_name:?} names node UID {:?}, inconsistent with the running node ({:?})",
            text("nodeUID"),
            own.uid()
        )));
    }
    let pod = found.pod.as_ref().ok_or_else(|| absent("pod", &pod_name, "pod", text("podName")))?;
    if pod.uid() != text("podUID") {
        return Err(Refused::Now(format!(
            "PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {:?}",
            text("podUID"),
            pod.uid()
        )));
    }
    if !super::bound_to(Some(pod), node) {
        return Err(Refused::For(format!(
            "pod {pod_name:?} is not running on node {node:?} named in the PodCertificateRequest"
        )));
    }
    if pod.annotation(MIRROR).is_some() {
        return Err(Refused::For(format!("pod {pod_name:?} is a mirror pod")));
    }
    let runs_as = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("");
    if runs_as != text("serviceAccountName") {
        return Err(Refused::For(format!(
            "PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({:?}) that differs from running pod ({runs_as:?})",
            text("serviceAccountName")
        )));
    }
    let shown = format!("{namespace}/{runs_as}");
    let account = found.account.as_ref().ok_or_else(|| absent("service account", &shown, "serviceaccount", runs_as))?;
    if account.uid() != text("serviceAccountUID") {
        return Err(Refused::Now(format!(
            "PodCertificateRequest for pod {pod_name:?} names service account UID {:?}, which differs from the running \
             service account ({:?})",
            text("serviceAccountUID"),
            account.uid()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found() -> Found {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "2"}, "spec": {"nodeName": "n1", "serviceAccountName": "web"},
        });
        let named = |name: &str, uid: &str| json!({"metadata": {"name": name, "uid": uid}});
        Found { node: Some(named("n1", "1")), pod: Some(pod), account: Some(named("web", "3")) }
    }

    fn spec(field: &str, value: &str) -> Value {
        let mut spec = json!({
            "nodeName": "n1", "nodeUID": "1", "podName": "p", "podUID": "2", "serviceAccountName": "web",
            "serviceAccountUID": "3",
        });
        spec[field] = value.into();
        spec
    }

    #[test]
    fn a_node_asks_for_its_own_pods_as_they_run_now() {
        let check =
            |spec: Value, expected: Result<(), Refused>| assert_eq!(judge("n1", "a", &spec, &found()), expected);
        check(spec("podName", "p"), Ok(()));
        check(
            spec("nodeName", "n2"),
            Err(Refused::For(
                r#"PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1""#.into(),
            )),
        );
        check(
            spec("podUID", "9"),
            Err(Refused::Now(
                r#"PodCertificateRequest for pod "a/p" contains pod UID ("9") which differs from running pod "2""#
                    .into(),
            )),
        );
        check(
            spec("serviceAccountName", "other"),
            Err(Refused::For(
                r#"PodCertificateRequest for pod "a/p" contains serviceAccountName ("other") that differs from running pod ("web")"#.into(),
            )),
        );
        check(
            spec("serviceAccountUID", "9"),
            Err(Refused::Now(
                r#"PodCertificateRequest for pod "a/p" names service account UID "9", which differs from the running service account ("3")"#.into(),
            )),
        );
    }

    #[test]
    fn neither_pods_of_other_nodes_nor_mirror_pods() {
        let mut elsewhere = found();
        elsewhere.pod.as_mut().expect("a pod")["spec"]["nodeName"] = "n2".into();
        let why = r#"pod "a/p" is not running on node "n1" named in the PodCertificateRequest"#;
        assert_eq!(judge("n1", "a", &spec("podName", "p"), &elsewhere), Err(Refused::For(why.into())));
        let mut mirror = found();
        mirror.pod.as_mut().expect("a pod")["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert_eq!(
            judge("n1", "a", &spec("podName", "p"), &mirror),
            Err(Refused::For(r#"pod "a/p" is a mirror pod"#.into()))
        );
        let gone = Found { pod: None, ..found() };
        let why = r#"while retrieving pod "a/p" named in the PodCertificateRequest: pod "p" not found"#;
        assert_eq!(judge("n1", "a", &spec("podName", "p"), &gone), Err(Refused::Now(why.into())));
    }
}
