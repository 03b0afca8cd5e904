//! What must hold for every kind that is served, whatever it is: found through discovery, as a client would.

use serde_json::{Value, json};
use testkit::{Client, Server};

struct Served {
    path: String,
    namespaced: bool,
    kind: String,
    verbs: Vec<String>,
}

/// Every resource and subresource in discovery, with the path of an object `x` in the namespace `default`.
async fn served(client: &Client) -> Vec<Served> {
    let mut roots = vec!["/api/v1".to_string()];
    let groups = client.get("/apis").await.unwrap().json();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            roots.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut all = Vec::new();
    for root in roots {
        let list = client.get(&root).await.unwrap().json();
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let namespaced = resource["namespaced"] == true;
            let scope = if namespaced { "/namespaces/default" } else { "" };
            let (plural, sub) =
                name.split_once('/').map_or((name, String::new()), |(plural, sub)| (plural, format!("/x/{sub}")));
            let verbs = resource["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap().to_string());
            all.push(Served {
                path: format!("{root}{scope}/{plural}{sub}"),
                namespaced,
                kind: resource["kind"].as_str().unwrap().to_string(),
                verbs: verbs.collect(),
            });
        }
    }
    all
}

/// A request of that verb.
fn request(served: &Served, verb: &str) -> (&'static str, String) {
    let one = match served.path.contains("/x/") {
        true => served.path.clone(),
        false => format!("{}/x", served.path),
    };
    match verb {
        "get" => ("GET", one),
        "list" => ("GET", served.path.clone()),
        "watch" => ("GET", format!("{}?watch=true&timeoutSeconds=1", served.path)),
        "create" => ("POST", served.path.clone()),
        "update" => ("PUT", one),
        "patch" => ("PATCH", one),
        "delete" => ("DELETE", one),
        "deletecollection" => ("DELETE", served.path.clone()),
        other => panic!("{} lists the verb {other}", served.path),
    }
}

#[tokio::test]
async fn every_verb_is_refused_without_permission() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let stranger =
        client.with_header("impersonate-user", "stranger").with_header("impersonate-group", "system:authenticated");
    let (mut asked, mut failures) = (0, Vec::new());
    for served in served(&client).await {
        for verb in &served.verbs {
            let (method, path) = request(&served, verb);
            let reply = stranger.send(method, &path, "application/merge-patch+json", "{}").await.unwrap();
            asked += 1;
            // Everyone may ask about themselves.
            let own = served.kind.starts_with("SelfSubject");
            if !own && (reply.code != 403 || reply.json()["reason"] != "Forbidden") {
                failures.push(format!("{method} {path}: {} {}", reply.code, reply.text()));
            }
        }
    }
    assert!(asked > 400, "discovery shows {asked} verbs only");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn every_listed_verb_is_known_and_every_list_is_one() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let (mut failures, mut watches) = (Vec::new(), Vec::new());
    for served in served(&client).await {
        for verb in &served.verbs {
            let (method, path) = request(&served, verb);
            if verb == "watch" {
                watches.push(path);
                continue;
            }
            let dry = if path.contains('?') { "&dryRun=All" } else { "?dryRun=All" };
            let path = if method == "GET" { path } else { format!("{path}{dry}") };
            let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let reply = client.send(method, &path, content_type, "{}").await.unwrap();
            if reply.code == 405 || reply.code >= 500 {
                failures.push(format!("{method} {path}: {} {}", reply.code, reply.text()));
            }
        }
        if served.verbs.iter().any(|verb| verb == "list") {
            let list = client.get(&served.path).await.unwrap().json();
            let table = client
                .with_header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
                .get(&served.path)
                .await
                .unwrap()
                .json();
            let partial =
                client.with_header("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
            let partial = partial.get(&served.path).await.unwrap().json();
            let columns = table["columnDefinitions"].as_array().map_or(0, Vec::len);
            let cells = |row: &Value| row["cells"].as_array().map_or(0, Vec::len);
            let rows_fit = table["rows"].as_array().is_some_and(|rows| rows.iter().all(|row| cells(row) == columns));
            let fine = list["kind"] == format!("{}List", served.kind)
                && list["items"].is_array()
                && table["kind"] == "Table"
                && columns > 0
                && rows_fit
                && (partial["kind"] == "PartialObjectMetadataList" || served.kind == "ComponentStatus");
            if !fine {
                failures.push(format!("{}: {} {} {}", served.path, list["kind"], table, partial["kind"]));
            }
        }
    }
    // Each takes its second, so all take it together.
    let replies = watches.iter().map(|path| client.get(path));
    for (path, reply) in watches.iter().zip(futures::future::join_all(replies).await) {
        let reply = reply.unwrap();
        let events = reply.text().lines().all(|line| serde_json::from_str::<Value>(line).is_ok());
        if reply.code != 200 || !events {
            failures.push(format!("GET {path}: {} {}", reply.code, reply.text()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A dry run leaves nothing behind, for any kind that can be created from nearly nothing.
#[tokio::test]
async fn dry_runs_leave_nothing() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    for served in served(&client).await {
        let creates = served.verbs.iter().any(|verb| verb == "create") && served.verbs.iter().any(|verb| verb == "get");
        if !creates || served.path.contains("/x/") {
            continue;
        }
        let object = json!({"metadata": {"name": "leaves-nothing"}});
        let reply = client.post(&format!("{}?dryRun=All", served.path), &object).await.unwrap();
        assert!(reply.code == 201 || reply.code == 422 || reply.code == 400, "{}: {}", served.path, reply.text());
        let gone = client.get(&format!("{}/leaves-nothing", served.path)).await.unwrap();
        assert_eq!(gone.code, 404, "{} (namespaced: {})", served.path, served.namespaced);
    }
}
