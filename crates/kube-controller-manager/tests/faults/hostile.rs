//! Objects that no reasonable user would make, in namespaces of their own. `hostile.txt` has them.

use serde_json::{Value, json};

use crate::world::World;

/// So many of them must be accepted, or this tests nothing; the others are refused by validation.
const ACCEPTED_MIN: usize = 36;

pub async fn create(world: &World) {
    world.create_account("narrow").await;
    let mut accepted = 0;
    for line in include_str!("hostile.txt").lines().filter(|line| line.starts_with('{')) {
        let text = line.replace("{63}", &"n".repeat(63)).replace("{253}", &"n".repeat(253));
        let text = text.replace("{big}", &"x".repeat(1_000_000)).replace("{long}", &"x".repeat(200_000));
        let object: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}"));
        match world.create(&object).await {
            Ok(_) => accepted += 1,
            Err(error) => println!("refused: {:.300}", error.to_string()),
        }
    }
    assert!(accepted >= ACCEPTED_MIN, "only {accepted} objects were accepted");
    owner_cycle(world, "hostile").await;
}

/// Two objects that own each other, and one that owns itself.
async fn owner_cycle(world: &World, namespace: &str) {
    let mut made: Vec<Value> = Vec::new();
    for name in ["one", "other", "itself"] {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
        made.push(world.create(&object).await.expect("a config map"));
    }
    for (index, owner) in [(0, 1), (1, 0), (2, 2)] {
        let name = made[index]["metadata"]["name"].as_str().unwrap_or_default();
        let metadata = &made[owner]["metadata"];
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": true});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let patch = json!({"metadata": {"ownerReferences": [reference], "finalizers": ["hostile.example.com/never"]}});
        let _ = world.send("PATCH", &path, "application/merge-patch+json", &patch).await;
    }
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/one");
    let _ = world.send("DELETE", &path, "application/json", &json!({"propagationPolicy": "Foreground"})).await;
}
