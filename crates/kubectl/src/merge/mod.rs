//! The patch that makes what is there into what is wanted, when only one of three may be believed for each field: what
//! was applied last (what we may take away), what is wanted now, and what the server has. Pure: values in, a patch out.

use machinery::schema::{PatchRule, Type, TypeRef};
use serde_json::{Map, Value, json};

/// A strategic merge patch for a built-in kind.
pub(crate) fn strategic(ty: TypeRef, original: &Value, modified: &Value, current: &Value) -> Value {
    let map = |value: &'_ Value| value.as_object().cloned().unwrap_or_default();
    Value::Object(maps(Some(ty), false, &map(original), &map(modified), &map(current)))
}

/// A JSON merge patch for any other kind: lists are replaced as a whole.
pub(crate) fn plain(original: &Value, modified: &Value, current: &Value) -> Value {
    let map = |value: &'_ Value| value.as_object().cloned().unwrap_or_default();
    Value::Object(plain_maps(&map(original), &map(modified), &map(current)))
}

fn plain_maps(
    original: &Map<String, Value>,
    modified: &Map<String, Value>,
    current: &Map<String, Value>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, wanted) in modified {
        match (wanted, current.get(key)) {
            (Value::Object(wanted), Some(Value::Object(have))) => {
                let nothing = Map::new();
                let before = original.get(key).and_then(Value::as_object).unwrap_or(&nothing);
                let inner = plain_maps(before, wanted, have);
                if !inner.is_empty() {
                    patch.insert(key.clone(), inner.into());
                }
            }
            (wanted, Some(have)) if same(wanted, have) => {}
            (wanted, None) if wanted.is_null() => {}
            (wanted, _) => _ = patch.insert(key.clone(), wanted.clone()),
        }
    }
    for key in original.keys() {
        if !modified.contains_key(key) && current.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

/// Equal as JSON, where 1 and 1.0 are the same number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}

fn field<'a>(ty: Option<TypeRef<'a>>, key: &str) -> (Option<TypeRef<'a>>, PatchRule) {
    let Some(ty) = ty else { return (None, PatchRule::default()) };
    match ty.get() {
        Type::Struct(shape) => match shape.field(key) {
            Some(field) => (Some(ty.of(field.ty)), field.patch.clone()),
            None => (None, PatchRule::default()),
        },
        Type::Map { value, .. } => (Some(ty.of(*value)), PatchRule::default()),
        Type::List { .. } | Type::Scalar(_) | Type::Any { .. } => (None, PatchRule::default()),
    }
}

fn item_type(ty: Option<TypeRef>) -> Option<TypeRef> {
    match ty?.get() {
        Type::List { item, .. } => ty.map(|ty| ty.of(*item)),
        _ => None,
    }
}

fn maps(
    ty: Option<TypeRef>,
    retain_keys: bool,
    original: &Map<String, Value>,
    modified: &Map<String, Value>,
    current: &Map<String, Value>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    let nothing = Map::new();
    for (key, wanted) in modified {
        let Some(have) = current.get(key) else {
            if !wanted.is_null() {
                patch.insert(key.clone(), wanted.clone());
            }
            continue;
        };
        let (inner_type, rule) = field(ty, key);
        match (wanted, have) {
            // Sent even where nothing differs: that is what upstream does.
            (Value::Object(_), Value::Object(_)) if rule.replace => _ = patch.insert(key.clone(), wanted.clone()),
            (Value::Object(wanted), Value::Object(have)) => {
                let before = original.get(key).and_then(Value::as_object).unwrap_or(&nothing);
                let inner = maps(inner_type, rule.retain_keys, before, wanted, have);
                if !inner.is_empty() {
                    patch.insert(key.clone(), inner.into());
                }
            }
            (Value::Array(wanted), Value::Array(have)) if rule.merge => {
                let before = original.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                lists(&mut patch, key, item_type(inner_type), &rule, before, wanted, have);
            }
            (wanted, have) if same(wanted, have) => {}
            (wanted, _) => _ = patch.insert(key.clone(), wanted.clone()),
        }
    }
    for key in original.keys() {
        // Told to go even where it has gone already: that is what upstream sends.
        if !modified.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    let kept = modified.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key);
    let mut kept: Vec<&String> = kept.filter(|_| retain_keys).collect();
    // What others have set beside it must go, even where nothing else differs.
    let has_more = current.iter().any(|(key, value)| !value.is_null() && !modified.contains_key(key));
    if !kept.is_empty() && (!patch.is_empty() || has_more) {
        kept.sort();
        patch.insert("$retainKeys".into(), json!(kept));
    }
    patch
}

fn lists(
    patch: &mut Map<String, Value>,
    key: &str,
    item_type: Option<TypeRef>,
    rule: &PatchRule,
    original: &[Value],
    modified: &[Value],
    current: &[Value],
) {
    let Some(merge_key) = rule.merge_key.as_deref() else {
        primitives(patch, key, original, modified, current);
        return;
    };
    let find = |list: &[Value], id: &Value| list.iter().find(|item| same(&item[merge_key], id)).cloned();
    let mut changes: Vec<Value> = Vec::new();
    for wanted in modified {
        let id = &wanted[merge_key];
        match (find(current, id), wanted) {
            (Some(Value::Object(have)), Value::Object(wanted)) => {
                let before = find(original, id).and_then(|before| before.as_object().cloned()).unwrap_or_default();
                let mut inner = maps(item_type, rule.retain_keys, &before, wanted, &have);
                if !inner.is_empty() {
                    inner.insert(merge_key.into(), id.clone());
                    changes.push(inner.into());
                }
            }
            // There is nothing to delete.
            (None, wanted) if wanted["$patch"] == "delete" => {}
            (_, wanted) => changes.push(wanted.clone()),
        }
    }
    let mut deletions: Vec<Value> = Vec::new();
    for before in original {
        let id = &before[merge_key];
        if find(modified, id).is_none() {
            deletions.push(json!({"$patch": "delete", merge_key: id}));
        }
    }
    let order: Vec<&Value> = modified.iter().map(|item| &item[merge_key]).collect();
    let now: Vec<&Value> = current.iter().map(|item| &item[merge_key]).collect();
    // What others have added is an order of its own: upstream sends ours again, though it changes nothing.
    if changes.is_empty() && deletions.is_empty() && now == order {
        return;
    }
    let ids: Vec<Value> = order.iter().map(|id| json!({merge_key: id})).collect();
    if !ids.is_empty() {
        patch.insert(format!("$setElementOrder/{key}"), ids.into());
    }
    changes.extend(deletions);
    if !changes.is_empty() {
        patch.insert(key.to_string(), changes.into());
    }
}

/// Lists of texts that merge, such as finalizers.
fn primitives(patch: &mut Map<String, Value>, key: &str, original: &[Value], modified: &[Value], current: &[Value]) {
    let added: Vec<Value> = modified.iter().filter(|item| !current.contains(item)).cloned().collect();
    let mut gone: Vec<Value> = Vec::new();
    for item in original.iter().filter(|item| !modified.contains(item)) {
        if !gone.contains(item) {
            gone.push(item.clone());
        }
    }
    if added.is_empty() && gone.is_empty() && current == modified {
        return;
    }
    if !modified.is_empty() {
        patch.insert(format!("$setElementOrder/{key}"), json!(modified));
    }
    if !added.is_empty() {
        patch.insert(key.to_string(), added.into());
    }
    if !gone.is_empty() {
        patch.insert(format!("$deleteFromPrimitiveList/{key}"), gone.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(containers: Value, labels: Value) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": containers}}}})
    }

    /// The patch, and what the server makes of it.
    fn check(original: Value, modified: Value, current: Value, patch: Value) {
        let ty = api::schema::type_named("apps", "v1", "Deployment").expect("Deployments have a type");
        let made = strategic(ty, &original, &modified, &current);
        assert_eq!(made, patch);
        let mut after = current;
        machinery::patch::strategic::apply(ty, &mut after, &made).expect("our own patch is good");
        let again = strategic(ty, &modified, &modified, &after);
        assert_eq!(again, json!({}), "after {after}");
    }

    #[test]
    fn the_patch_names_only_what_differs() {
        let one = deployment(json!([{"name": "web", "image": "a"}]), json!({"app": "x"}));
        check(one.clone(), one.clone(), one.clone(), json!({}));
        // What the server has added stays.
        let served = deployment(
            json!([{"name": "web", "image": "a", "imagePullPolicy": "Always"}]),
            json!({"app": "x", "own": "y"}),
        );
        check(one.clone(), one.clone(), served.clone(), json!({}));
        // What we said before and say no more goes.
        let two =
            deployment(json!([{"name": "web", "image": "b"}, {"name": "side", "image": "c"}]), json!({"tier": "z"}));
        check(
            one.clone(),
            two.clone(),
            served.clone(),
            json!({
                "metadata": {"labels": {"tier": "z", "app": null}},
                "spec": {"template": {"spec": {
                    "$setElementOrder/containers": [{"name": "web"}, {"name": "side"}],
                    "containers": [{"name": "web", "image": "b"}, {"name": "side", "image": "c"}],
                }}},
            }),
        );
        check(
            two.clone(),
            one.clone(),
            two,
            json!({
                "metadata": {"labels": {"app": "x", "tier": null}},
                "spec": {"template": {"spec": {
                    "$setElementOrder/containers": [{"name": "web"}],
                    "containers": [{"name": "web", "image": "a"}, {"name": "side", "$patch": "delete"}],
                }}},
            }),
        );
    }

    #[test]
    fn kinds_without_a_schema_are_patched_plainly() {
        let patch = plain(
            &json!({"spec": {"color": "red", "size": 1, "list": [1]}}),
            &json!({"spec": {"color": "green", "list": [1, 2]}}),
            &json!({"spec": {"color": "red", "size": 1, "list": [1], "other": true}}),
        );
        assert_eq!(patch, json!({"spec": {"color": "green", "size": null, "list": [1, 2]}}));
    }

    /// The type of upstream's own tests, whose lists hold items of the same type.
    fn merge_items() -> machinery::schema::Schemas {
        use machinery::schema::{Empty, Field, ListKind, Scalar, Schemas, Struct};

        let mut schemas = Schemas::default();
        let item = schemas.add(Type::Any { atomic: false });
        let mut fields = Vec::new();
        let mut add = |schemas: &mut Schemas, name: &str, ty: Type, patch: PatchRule| {
            let ty = schemas.add(ty);
            fields.push(Field { name: name.into(), ty, required: false, empty: Empty::Kept, patch, default: None });
        };
        let merged =
            |key: Option<&str>| PatchRule { merge: true, merge_key: key.map(Into::into), ..PatchRule::default() };
        for name in ["name", "value", "other"] {
            add(&mut schemas, name, Type::Scalar(Scalar::String), PatchRule::default());
        }
        let text = schemas.add(Type::Scalar(Scalar::String));
        let list = |item| Type::List { item, kind: ListKind::Atomic };
        add(&mut schemas, "simpleMap", Type::Map { value: text, atomic: false }, PatchRule::default());
        add(&mut schemas, "mergingList", list(item), merged(Some("name")));
        add(&mut schemas, "nonMergingList", list(item), PatchRule::default());
        add(&mut schemas, "mergingIntList", list(text), merged(None));
        add(&mut schemas, "nonMergingIntList", list(text), PatchRule::default());
        let replaced = PatchRule { replace: true, ..PatchRule::default() };
        add(&mut schemas, "replacingItem", Type::Any { atomic: true }, replaced);
        add(&mut schemas, "mergeItemPtr", list(item), merged(Some("name")));
        let keyed = PatchRule { retain_keys: true, ..merged(Some("name")) };
        add(&mut schemas, "retainKeysMergingList", list(item), keyed);
        fields.push(Field {
            name: "retainKeysMap".into(),
            ty: item,
            required: false,
            empty: Empty::Kept,
            patch: PatchRule { retain_keys: true, ..PatchRule::default() },
            default: None,
        });
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        schemas.set(item, Type::Struct(Struct { fields, ..Struct::default() }));
        schemas.name("T", item);
        schemas
    }

    /// With the items of all lists in one order, as upstream compares some of its tests.
    fn in_order(value: &Value) -> Value {
        match value {
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(in_order).collect();
                items.sort_by_key(|item| item.get("name").unwrap_or(item).to_string());
                items.into()
            }
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), in_order(value))).collect(),
            other => other.clone(),
        }
    }

    /// The tables of upstream's tests: what was applied, what is wanted, what there is, and the patch.
    #[test]
    fn patches_are_those_that_upstreams_tests_expect() {
        let schemas = merge_items();
        let ty = schemas.by_name("T").expect("named");
        let mut different = Vec::new();
        for line in include_str!("testdata/merge-items.jsonl").lines() {
            let row: Value = serde_json::from_str(line).expect("a line is JSON");
            let (original, modified, current) = (&row["original"], &row["modified"], &row["current"]);
            let is_plain = row["plain"] == true;
            let made =
                if is_plain { plain(original, modified, current) } else { strategic(ty, original, modified, current) };
            let is_same = made == row["patch"] || row["sorted"] == true && in_order(&made) == in_order(&row["patch"]);
            if !is_same {
                different.push(format!("{line}\n  ours {made}"));
            }
        }
        assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    }

    /// Patches that upstream's own functions (v1.36.4) made, written down once.
    #[test]
    fn patches_are_those_of_upstream() {
        let ty = api::schema::type_named("apps", "v1", "Deployment").expect("Deployments have a type");
        let mut different = Vec::new();
        for line in include_str!("testdata/three-way.jsonl").lines() {
            let row: Value = serde_json::from_str(line).expect("a line is JSON");
            let (original, modified, current) = (&row["original"], &row["modified"], &row["current"]);
            let made = if row["strategic"] == true {
                strategic(ty, original, modified, current)
            } else {
                plain(original, modified, current)
            };
            if made != row["patch"] {
                different.push(format!("{line}\n  ours {made}"));
            }
        }
        assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    }
}
