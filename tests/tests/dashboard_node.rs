//! The dashboard beside a real node: a terminal through it, and what pods used.

#[path = "support/dashboard.rs"]
mod dashboard;
#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use dashboard::{Live, Page};
use futures::StreamExt;
use on_node::{IMAGE, Node};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

#[test]
fn terminals_and_measurements() {
    let node = Node::start(&[]);
    let kubectl = node.server.kubectl();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy"}, "spec": {"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "args": ["spin"],
            "resources": {"limits": {"cpu": "100m", "memory": "32Mi"}}}]}});
    kubectl.ok_with(&["apply", "-f", "-"], &pod.to_string());
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/busy", "--timeout=100s"]);
    let ended = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ended"}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", "echo my last words; exit 3"]}]}});
    kubectl.ok_with(&["apply", "-f", "-"], &ended.to_string());
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let admin = Page::sign_in(&node.server.client().unwrap(), &json!({"clientCertificate": true})).await;
        assert_eq!(admin.session["features"]["history"], true);

        // A command by WebSocket, through the dashboard and with its session.
        let origin = format!("https://{}", admin.client.address());
        let path = "/dashboard/k8s/api/v1/namespaces/default/pods/busy/exec?command=sh&command=-c&command=echo%20hello-$((20%2B22))&stdout=true&container=c";
        assert_eq!(Live::open(&admin.client, "https://evil.example", path).await.err(), Some(403));
        let mut terminal = Live::open(&admin.client, &origin, path).await.expect("the command is started").0;
        let mut said = Vec::new();
        while let Some(Ok(message)) = terminal.next().await {
            match message {
                Message::Binary(bytes) => said.extend_from_slice(&bytes),
                Message::Close(_) => break,
                _ => {}
            }
        }
        assert!(String::from_utf8_lossy(&said).contains("hello-"), "{said:?}");
        let _ = terminal.close(None).await;

        // Usage stands in the row, and a pod that ended says why with its last words.
        let mut live = admin.live().await;
        let pods = json!({"group": "", "version": "v1", "resource": "pods"});
        live.say(json!({"id": 1, "op": "list", "resource": pods, "namespace": "default", "text": "busy", "count": 5})).await;
        live.until(1, "usage in the row", |frame| frame["rows"][0]["usage"]["cpu"].as_f64().is_some_and(|cpu| cpu > 0.0)).await;
        live.say(json!({"id": 2, "op": "overview"})).await;
        let used = |frame: &Value| frame["nodes"][0]["memory"]["usage"].as_f64().is_some_and(|used| used > 0.0);
        let overview = live.until(2, "usage of the node", used).await;
        assert_eq!(overview["nodes"][0]["ready"], true, "{overview}");
        let why = dashboard::until("the end is explained", async || {
            let why = admin.ok("api/why?version=v1&resource=pods&namespace=default&name=ended").await;
            match why["verdict"] == "Container c ended: exit code 3" {
                true => Ok(why),
                false => Err(why.to_string()),
            }
        })
        .await;
        assert!(why["findings"].to_string().contains("my last words"), "{why}");

        // A minute later what it used is known.
        let (began, mut last) = (Instant::now(), json!(null));
        let cpu = loop {
            assert!(began.elapsed() < Duration::from_secs(200), "nothing was measured: {last}");
            last = admin.ok("api/history?kind=pod&namespace=default&name=busy&hours=1").await;
            let series = last["series"]["cpu"].as_array().unwrap();
            if let Some(cpu) = series.iter().rev().find_map(|value| value.as_f64()).filter(|cpu| *cpu > 0.0) {
                break cpu;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        };
        assert!(cpu > 0.01 && cpu < 0.5, "{cpu}");
        let memory = last["series"]["memory"].as_array().unwrap().iter().rev().find_map(|value| value.as_f64());
        assert!(memory.is_some_and(|memory| memory > 4096.0 && memory < 64e6), "{memory:?}");
        let nodes = admin.ok("api/history?kind=node&name=node-1&hours=1").await;
        assert!(nodes["series"]["memory"].as_array().unwrap().iter().any(|value| value.is_f64()), "{nodes}");
    });
}
