use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;

fn object(namespace: &str, name: &str, version: &str, owner: &str) -> Arc<ConfigMap> {
    let owner = OwnerReference { uid: owner.into(), ..OwnerReference::default() };
    let metadata = ObjectMeta {
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        resource_version: Some(version.into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Arc::new(ConfigMap { metadata, ..ConfigMap::default() })
}

fn names(objects: &[Arc<ConfigMap>]) -> Vec<String> {
    objects.iter().map(|object| Key::of(&object.metadata).to_string()).collect()
}

#[test]
fn objects_are_found_by_key_namespace_and_owner() {
    let cache = Cache::<ConfigMap>::default();
    for (namespace, name, owner) in [("a", "x", "1"), ("a", "y", "2"), ("ab", "x", "1"), ("b", "z", "2")] {
        cache.put(object(namespace, name, "1", owner));
    }
    assert_eq!(names(&cache.in_namespace("a")), ["a/x", "a/y"]);
    assert_eq!(names(&cache.owned_by("1")), ["a/x", "ab/x"]);
    assert_eq!(names(&cache.uncontrolled("a")), ["a/x", "a/y"]);
    cache.put(object("a", "x", "2", "2"));
    cache.remove(&Key::new("b", "z"));
    assert_eq!(names(&cache.owned_by("1")), ["ab/x"]);
    assert_eq!(names(&cache.owned_by("2")), ["a/x", "a/y"]);
    assert!(cache.get(&Key::new("b", "z")).is_none());
}

#[test]
fn what_cannot_be_read_ends_all_the_same() {
    let cache = Arc::new(Cache::<ConfigMap>::default());
    cache.put(object("a", "x", "1", "1"));
    let mut filling = Filling { cache: cache.clone(), listed: BTreeMap::new(), newest: 0, whole: false };
    let unreadable = r#"{"metadata": {"namespace": "a", "name": "x", "resourceVersion": "7"}, "data": 1}"#;
    assert!(filling.take(Change::Put(unreadable)).is_err());
    assert!(cache.get(&Key::new("a", "x")).is_some());
    assert_eq!(filling.take(Change::Gone(unreadable)).unwrap(), 7);
    assert!(cache.get(&Key::new("a", "x")).is_none());
}

#[test]
fn an_index_follows_its_objects() {
    const BY_OWNER: Index<ConfigMap> = Index {
        name: "owner",
        of: |map| map.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
    };
    let cache = Cache::<ConfigMap>::default();
    cache.put(object("a", "x", "1", "1"));
    assert_eq!(names(&cache.found_by(BY_OWNER, "1")), ["a/x"]);
    cache.put(object("a", "y", "2", "1"));
    cache.put(object("a", "x", "3", "2"));
    assert_eq!(names(&cache.found_by(BY_OWNER, "1")), ["a/y"]);
    assert_eq!(cache.found_by(BY_OWNER, "2")[0].metadata.resource_version.as_deref(), Some("3"));
    cache.remove(&Key::new("a", "y"));
    assert!(cache.found_by(BY_OWNER, "1").is_empty());
    assert_eq!(cache.state.read().indexes.len(), 1);
}

#[test]
fn of_objects_that_are_alike_one_is_asked() {
    const BY_OWNER: Index<ConfigMap> = Index {
        name: "owner",
        of: |map| map.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
    };
    for count in [10, 100] {
        let cache = Cache::<ConfigMap>::default();
        for number in 0..count {
            cache.put(object("a", &format!("{number:03}"), "1", ["a/x", "a/y", "b/x"][number % 3]));
        }
        let asked = Mutex::new(0);
        let found = cache.found_like(BY_OWNER, "a/", |_| {
            *asked.lock() += 1;
            true
        });
        assert!(found.is_sorted_by_key(|one| one.metadata.name.clone()));
        assert_eq!((found.len(), *asked.lock()), (count - count / 3, 2));
    }
}

#[test]
fn who_has_heard_enough_is_told_no_more() {
    let cache = Cache::<ConfigMap>::default();
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    cache.listen_while(move |_, _| {
        *count.lock() += 1;
        *count.lock() < 2
    });
    for version in ["1", "2", "3"] {
        cache.put(object("a", "x", version, "1"));
    }
    assert_eq!(*told.lock(), 2);
    assert!(cache.listeners.lock().is_empty());
}

#[test]
fn a_new_list_tells_only_what_changed() {
    let cache = Cache::<ConfigMap>::default();
    for name in ["gone", "same", "changed"] {
        cache.put(object("a", name, "1", "1"));
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let record = told.clone();
    cache.listen(move |old, new| {
        let name = |object: Option<&Arc<ConfigMap>>| object.and_then(|object| object.metadata.name.clone());
        record.lock().push((name(old), name(new)));
    });
    told.lock().clear();
    let listed = [object("a", "same", "1", "1"), object("a", "changed", "2", "1"), object("a", "new", "3", "1")];
    cache.replace(listed.into_iter().map(|object| (Key::of(&object.metadata), object)).collect());
    let some = |name: &str| Some(name.to_string());
    let expected = [(some("gone"), None), (some("changed"), some("changed")), (None, some("new"))];
    assert_eq!(*told.lock(), expected);
}
