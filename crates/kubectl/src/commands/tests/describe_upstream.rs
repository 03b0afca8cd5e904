//! `kubectl describe` of the objects in upstream's own tests of its describers (v1.36), with what those expect: the whole text, or
//! parts that are there or are not. `describe/testdata/upstream.txt` has them, objects first.

use super::*;

#[derive(Default)]
struct Case {
    name: String,
    /// The one that is described, and what else the API has.
    objects: Vec<Value>,
    prints: Option<String>,
    shows: Vec<String>,
    hides: Vec<String>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut part = "";
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/describe/testdata/upstream.txt"));
    for line in text.expect("the cases").lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            part = "objects";
            continue;
        }
        let case = cases.last_mut().expect("a case begins with its name");
        if let Some(next) = line.strip_prefix("--- ") {
            part = next;
            continue;
        }
        match part {
            "objects" => case.objects.push(serde_json::from_str(line).expect("an object")),
            "prints" => case.prints.get_or_insert_default().extend([line, "\n"]),
            "shows" => case.shows.push(serde_json::from_str(line).expect("a text")),
            "hides" => case.hides.push(serde_json::from_str(line).expect("a text")),
            other => panic!("no part {other}"),
        }
    }
    cases
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Where objects of its kind are.
fn collection(object: &Value) -> String {
    let kind = api::KINDS.iter().find(|kind| {
        let version =
            if kind.group.is_empty() { kind.version.to_owned() } else { format!("{}/{}", kind.group, kind.version) };
        kind.kind == text(object, "/kind") && version == text(object, "/apiVersion")
    });
    let kind = kind.unwrap_or_else(|| panic!("no kind of {object}"));
    let root =
        if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", kind.group, kind.version) };
    if kind.namespaced() {
        format!("{root}/namespaces/{}/{}", text(object, "/metadata/namespace"), kind.plural)
    } else {
        format!("{root}/{}", kind.plural)
    }
}

/// What it prints, and where that is not what upstream's tests want.
fn described(case: &Case) -> Result<(), String> {
    let mut objects = case.objects.clone();
    for object in &mut objects {
        if text(object, "/metadata/name").is_empty() {
            object["metadata"]["name"] = "bar".into();
        }
        if text(object, "/metadata/namespace").is_empty() {
            object["metadata"]["namespace"] = "default".into();
        }
    }
    let mut places: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let namespace = text(&objects[0], "/metadata/namespace").to_owned();
    for (group, plural) in [("api/v1", "events"), ("api/v1", "pods"), ("apis/apps/v1", "replicasets")] {
        places.insert(format!("/{group}/namespaces/{namespace}/{plural}"), Vec::new());
    }
    for plural in ["endpointslices", "events", "pods", "services", "resourcequotas", "limitranges"] {
        let group = if plural == "endpointslices" { "apis/discovery.k8s.io/v1" } else { "api/v1" };
        places.entry(format!("/{group}/namespaces/{namespace}/{plural}")).or_default();
        places.entry(format!("/{group}/{plural}")).or_default();
    }
    let (place, name) = (collection(&objects[0]), text(&objects[0], "/metadata/name").to_owned());
    for object in &mut objects {
        let place = collection(object);
        if !place.contains("/namespaces/") || place.ends_with("/namespaces") {
            object["metadata"].as_object_mut().expect("metadata").remove("namespace");
        }
        places.entry(place).or_default().push(object.clone());
    }
    let mut fake = Fake::new();
    for (place, objects) in places {
        fake = if objects.is_empty() {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []});
            fake.answer(&format!("GET {place}"), list)
        } else {
            fake.objects(&place, &objects)
        };
    }
    let plural = place.rsplit('/').next().unwrap_or_default();
    // Upstream's tests of whole texts leave events out where they are of no matter.
    let events = case.prints.as_ref().is_none_or(|text| text.contains("\nEvents:"));
    let ran = fake.run(&format!("describe {plural} {name} -n {namespace} --show-events={events}"));
    if !ran.err.is_empty() {
        return Err(format!("{}\n{:?}", ran.err, ran.lines()));
    }
    match &case.prints {
        Some(prints) if prints.trim_end() != ran.out.trim_end() => {
            return Err(format!("upstream prints\n{prints}ours is\n{}", ran.out));
        }
        _ => {}
    }
    let missing: Vec<&String> = case.shows.iter().filter(|text| !ran.out.contains(text.as_str())).collect();
    let found: Vec<&String> = case.hides.iter().filter(|text| ran.out.contains(text.as_str())).collect();
    if missing.is_empty() && found.is_empty() {
        return Ok(());
    }
    Err(format!("missing {missing:?}, not wanted {found:?} in\n{}", ran.out))
}

#[test]
fn objects_of_upstreams_tests() {
    let cases = cases();
    let different: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("=== {}\n{}", case.name, described(case).err()?))).collect();
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), cases.len(), different.join("\n"));
}
