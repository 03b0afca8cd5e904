//! Jobs, CronJobs and budgets on a real control plane. The test plays the kubelet: it ends pods through the API.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Options, Server};

const LATER: Duration = Duration::from_secs(20);
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn until(what: &str, within: Duration, mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !reached().await {
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("the server answers").json()
}

async fn create(client: &Client, path: &str, object: Value) -> Value {
    let reply = client.post(path, &object).await.expect("the server answers");
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()
}

fn started() -> (Server, Client) {
    let server = Server::start().expect("starts");
    server.default_account("default").expect("an account");
    let client = server.client().expect("a client");
    (server, client)
}

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "knarr.dev/demo:latest"}]}})
}

async fn job(client: &Client, name: &str, mut spec: Value) {
    spec["template"] = template();
    create(client, JOBS, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// The pods of a Job that have not ended.
async fn running(client: &Client, job: &str) -> Vec<Value> {
    let pods = get(client, &format!("{PODS}?labelSelector=job-name%3D{job}")).await;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let lives = |pod: &Value| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    pods.into_iter().filter(|pod| lives(pod) && pod["metadata"].get("deletionTimestamp").is_none()).collect()
}

async fn end(client: &Client, pod: &Value, code: i32) {
    let name = pod["metadata"]["name"].as_str().expect("a name");
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let terminated = json!({"exitCode": code, "reason": "Ended"});
    let container = json!({"name": "c", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": {"terminated": terminated}});
    let status = json!({"status": {"phase": phase, "containerStatuses": [container]}}).to_string();
    let path = format!("{PODS}/{name}/status");
    let reply = client.send("PATCH", &path, "application/merge-patch+json", status).await.expect("the server answers");
    assert_eq!(reply.code, 200, "{}", reply.text());
}

async fn pods_until(client: &Client, job: &str, count: usize) -> Vec<Value> {
    until(&format!("{count} pods of {job}"), LATER, async || running(client, job).await.len() == count).await;
    running(client, job).await
}

/// Types and reasons of the conditions.
fn conditions(job: &Value) -> Vec<String> {
    let all = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_string();
    all.iter().map(|one| format!("{} {}", text(one, "type"), text(one, "reason"))).collect()
}

async fn events(client: &Client, about: &str) -> Vec<String> {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{about}");
    let events = get(client, &path).await;
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_string();
    events.iter().map(|one| format!("{} {} {}", text(one, "type"), text(one, "reason"), text(one, "message"))).collect()
}

#[tokio::test]
async fn a_job_completes_when_its_pods_have_succeeded() {
    let (_server, client) = started();
    job(&client, "work", json!({"completions": 3, "parallelism": 2})).await;
    for pod in pods_until(&client, "work", 2).await {
        end(&client, &pod, 0).await;
    }
    end(&client, &pods_until(&client, "work", 1).await[0], 0).await;
    let path = format!("{JOBS}/work");
    until("complete", LATER, async || conditions(&get(&client, &path).await).len() == 2).await;
    let done = get(&client, &path).await;
    assert_eq!(conditions(&done), ["SuccessCriteriaMet CompletionsReached", "Complete CompletionsReached"]);
    let status = &done["status"];
    assert_eq!((&status["succeeded"], &status["ready"], &status["terminating"]), (&json!(3), &json!(0), &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert_eq!(status["completionTime"], status["conditions"][1]["lastTransitionTime"]);
    assert!(status["active"].is_null() && status["failed"].is_null(), "{status}");
    let pods = get(&client, &format!("{PODS}?labelSelector=job-name%3Dwork")).await;
    let held = pods["items"].as_array().expect("pods").iter().filter(|pod| pod["metadata"].get("finalizers").is_some());
    assert_eq!(held.count(), 0, "every pod is let go");
    until("its events", LATER, async || {
        events(&client, "work").await.contains(&"Normal Completed Job completed".to_string())
    })
    .await;
}

#[tokio::test]
async fn a_failing_job_backs_off_and_gives_up() {
    let (_server, client) = started();
    job(&client, "bad", json!({"backoffLimit": 1})).await;
    end(&client, &pods_until(&client, "bad", 1).await[0], 1).await;
    let failed = Instant::now();
    let second = pods_until(&client, "bad", 1).await;
    assert!(failed.elapsed() > Duration::from_secs(8), "the second try came after {:?}", failed.elapsed());
    end(&client, &second[0], 1).await;
    let path = format!("{JOBS}/bad");
    until("failed", LATER, async || conditions(&get(&client, &path).await).len() == 2).await;
    let done = get(&client, &path).await;
    assert_eq!(conditions(&done), ["FailureTarget BackoffLimitExceeded", "Failed BackoffLimitExceeded"]);
    assert_eq!(done["status"]["failed"], 2);
    let told = "Warning BackoffLimitExceeded Job has reached the specified backoff limit".to_string();
    until("its events", LATER, async || events(&client, "bad").await.contains(&told)).await;
}

#[tokio::test]
async fn indexes_are_done_one_by_one_and_a_policy_can_end_it_all() {
    let (_server, client) = started();
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "podFailurePolicy": policy});
    job(&client, "parts", spec.clone()).await;
    for pod in pods_until(&client, "parts", 3).await {
        let index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str().expect("one");
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], index);
        assert_eq!(pod["spec"]["hostname"], format!("parts-{index}"));
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
        let prefix = format!("parts-{index}-");
        assert!(pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&prefix)), "{pod}");
        end(&client, &pod, 0).await;
    }
    let path = format!("{JOBS}/parts");
    until("complete", LATER, async || conditions(&get(&client, &path).await).len() == 2).await;
    assert_eq!(get(&client, &path).await["status"]["completedIndexes"], "0-2");

    job(&client, "fatal", spec).await;
    let pods = pods_until(&client, "fatal", 3).await;
    end(&client, &pods[0], 42).await;
    let path = format!("{JOBS}/fatal");
    until("failed", LATER, async || conditions(&get(&client, &path).await).len() == 2).await;
    let done = get(&client, &path).await;
    let name = pods[0]["metadata"]["name"].as_str().expect("a name");
    let message =
        format!("Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 0");
    assert_eq!(done["status"]["conditions"][1]["message"], message);
    assert!(running(&client, "fatal").await.is_empty());
}

#[tokio::test]
async fn a_suspended_job_waits_and_a_finished_one_goes_in_its_time() {
    let (_server, client) = started();
    job(&client, "later", json!({"suspend": true, "ttlSecondsAfterFinished": 1})).await;
    let path = format!("{JOBS}/later");
    until("suspended", LATER, async || conditions(&get(&client, &path).await) == ["Suspended JobSuspended"]).await;
    assert!(running(&client, "later").await.is_empty());
    assert!(get(&client, &path).await["status"]["startTime"].is_null());
    let resume = json!({"spec": {"suspend": false}}).to_string();
    client.send("PATCH", &path, "application/merge-patch+json", resume).await.expect("the server answers");
    end(&client, &pods_until(&client, "later", 1).await[0], 0).await;
    until("gone", LATER, async || client.get(&path).await.expect("the server answers").code == 404).await;
}

#[tokio::test]
async fn a_cron_job_starts_at_its_minute() {
    let (_server, client) = started();
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}});
    create(&client, path, json!({"metadata": {"name": "cron"}, "spec": spec})).await;
    let jobs = async || get(&client, JOBS).await["items"].as_array().cloned().unwrap_or_default();
    until("a job", Duration::from_secs(65), async || !jobs().await.is_empty()).await;
    let made = jobs().await.remove(0);
    let name = made["metadata"]["name"].as_str().expect("a name").to_string();
    let minute: i64 = name.strip_prefix("cron-").and_then(|text| text.parse().ok()).expect("a minute");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    assert!((now / 60 - minute) <= 1, "{name} at {now}");
    assert!(made["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].is_string());
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    let path = format!("{path}/cron");
    until("it is active", LATER, async || get(&client, &path).await["status"]["active"][0]["name"] == *name).await;
    end(&client, &pods_until(&client, &name, 1).await[0], 0).await;
    until("it is seen to end", LATER, async || get(&client, &path).await["status"]["lastSuccessfulTime"].is_string())
        .await;
    let told = format!("Normal SawCompletedJob Saw completed job: {name}, condition: Complete");
    until("its events", LATER, async || events(&client, "cron").await.contains(&told)).await;
}

#[tokio::test]
async fn evictions_honour_a_budget() {
    let (_server, client) = started();
    let labels = json!({"app": "web"});
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}});
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    create(&client, budgets, budget).await;
    let node = json!({"metadata": {"name": "n1"}});
    create(&client, "/api/v1/nodes", node).await;
    for name in ["one", "two"] {
        let mut pod = json!({"metadata": {"name": name, "labels": labels}, "spec": template()["spec"]});
        pod["spec"]["nodeName"] = "n1".into();
        create(&client, PODS, pod).await;
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"phase": "Running", "conditions": [ready]}}).to_string();
        let path = format!("{PODS}/{name}/status");
        let reply = client.send("PATCH", &path, "application/merge-patch+json", status).await.expect("answers");
        assert_eq!(reply.code, 200, "{}", reply.text());
    }
    let path = format!("{budgets}/web");
    until("one may go", LATER, async || get(&client, &path).await["status"]["disruptionsAllowed"] == 1).await;
    let status = get(&client, &path).await["status"].clone();
    assert_eq!(
        (&status["currentHealthy"], &status["desiredHealthy"], &status["expectedPods"]),
        (&json!(2), &json!(1), &json!(2))
    );
    assert_eq!(status["conditions"][0]["reason"], "SufficientPods");
    let evict = async |name: &str| {
        let eviction = json!({"metadata": {"name": name}, "apiVersion": "policy/v1", "kind": "Eviction"});
        client.post(&format!("{PODS}/{name}/eviction"), &eviction).await.expect("the server answers").code
    };
    assert_eq!(evict("one").await, 201);
    until("none may go", LATER, async || get(&client, &path).await["status"]["disruptionsAllowed"] == 0).await;
    assert_eq!(evict("two").await, 429);
}

#[tokio::test]
async fn an_autoscaler_without_metrics_says_so_and_keeps_to_its_bounds() {
    let arguments = vec!["--disable=metrics-server".to_string()];
    let server = Server::start_with(Options { arguments, ..Options::default() }).expect("starts");
    server.default_account("default").expect("an account");
    let client = server.client().expect("a client");
    let labels = json!({"app": "web"});
    let mut pod = template();
    pod["spec"]["restartPolicy"] = "Always".into();
    pod["metadata"] = json!({"labels": labels});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": pod});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    create(&client, deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let spec = json!({"minReplicas": 3, "maxReplicas": 5, "scaleTargetRef": target, "metrics": [metric]});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    create(&client, path, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let deployment = format!("{deployments}/web");
    until("the least", Duration::from_secs(40), async || get(&client, &deployment).await["spec"]["replicas"] == 3)
        .await;
    let told =
        "Normal SuccessfulRescale New size: 3; reason: Current number of replicas below Spec.MinReplicas".to_string();
    until("its events", LATER, async || events(&client, "web").await.contains(&told)).await;
    let path = format!("{path}/web");
    let named =
        |autoscaler: &Value| conditions(autoscaler).contains(&"ScalingActive FailedGetResourceMetric".to_string());
    until("no metrics", Duration::from_secs(40), async || named(&get(&client, &path).await)).await;
    let conditions = get(&client, &path).await["status"]["conditions"].clone();
    let message = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for \
                   resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested \
                   resource (get pods.metrics.k8s.io)";
    let said = conditions.as_array().expect("conditions").iter().find(|one| one["type"] == "ScalingActive");
    assert_eq!(said.expect("is there")["message"], message);
}
