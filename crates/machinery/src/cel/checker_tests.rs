//! Expressions that upstream refuses, with its own words, and expressions of well-known definitions that it takes.

use serde_json::{Value, json};

use super::*;

/// Something of each kind.
fn schema() -> Value {
    let (int, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let list = |item: &Value| json!({"type": "array", "items": item});
    let map = |value: &Value| json!({"type": "object", "additionalProperties": value});
    let open = json!({"x-kubernetes-preserve-unknown-fields": true});
    let formatted = |format: &str| json!({"type": "string", "format": format});
    json!({"type": "object", "properties": {
        "i": int, "n": {"type": "number"}, "s": text, "b": {"type": "boolean"}, "y": formatted("byte"),
        "d": formatted("duration"), "t": formatted("date-time"), "u": {"x-kubernetes-int-or-string": true},
        "l": list(&int), "ls": list(&text), "ll": list(&list(&int)), "m": map(&int), "ms": map(&text),
        "lo": list(&json!({"type": "object", "properties": {"k": text, "v": int}})),
        "mo": map(&json!({"type": "object", "properties": {"f": text}})),
        "o": {"type": "object", "properties": {"x": int, "y": text, "p": {"type": "object", "properties": {"q": {"type": "boolean"}}}}},
        "any": open, "anyList": list(&open), "anyMap": map(&open), "1bad": int, "a-b": int, "namespace": text,
        "w": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": int}},
        "e": {"type": "object", "x-kubernetes-embedded-resource": true},
    }})
}

fn told(text: &str) -> Option<String> {
    let schema = schema();
    let env = Env::of_rules(&schema, false, false).expect("a schema that expressions can see");
    Program::check(text, &env).err().map(|issues| issues.to_string())
}

/// Each line is an expression, and each of its issues with the column it points at.
#[test]
fn wrong_expressions_are_refused_with_the_words_of_upstream() {
    let mut wrong = Vec::new();
    let lines = include_str!("testdata/wrong.txt");
    for line in lines.lines() {
        let (text, issues) = line.split_once('\t').expect("an expression and its issues");
        let expected: Vec<String> = issues
            .split('\t')
            .map(|issue| {
                let (column, message) = issue.split_once(": ").expect("a column and a message");
                let dots = ".".repeat(column.parse::<usize>().expect("a column") - 1);
                let pointed = if text.is_empty() { String::new() } else { format!("\n | {text}\n | {dots}^") };
                format!("ERROR: <input>:1:{column}: {message}{pointed}")
            })
            .collect();
        let found = told(text).unwrap_or_default();
        if found != expected.join("\n") {
            wrong.push(format!("{text}\n--- found\n{found}\n--- expected\n{}", expected.join("\n")));
        }
    }
    assert!(lines.lines().count() > 350, "the table is whole");
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn expressions_of_upstreams_own_tests_are_taken() {
    let mut wrong = Vec::new();
    for text in include_str!("testdata/right.txt").lines() {
        if let Some(told) = told(text) {
            wrong.push(told);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lines_are_counted_and_wide_letters_marked() {
    let shown = told("self.i == 1 &&\n\tself.s == 2").expect("wrong");
    let expected = "ERROR: <input>:2:9: found no matching overload for '_==_' applied to '(string, int)'\n |  self.s == 2\n | ........^";
    assert_eq!(shown, expected);
    let shown = told("'😁' == 1").expect("wrong");
    assert!(shown.ends_with("\n | '😁' == 1\n | .．..^"), "{shown}");
}

#[test]
fn the_type_of_the_answer_is_known() {
    let schema = schema();
    let env = Env::of_rules(&schema, false, false).expect("a schema");
    for (text, expected) in [
        ("self.i > 1", "bool"),
        ("self.u", "dyn"),
        ("self.l", "list(int)"),
        ("self.l.map(x, x > 1)", "list(bool)"),
        ("self.m.map(k, k)", "list(string)"),
        ("self.l.filter(x, x > 1)", "list(int)"),
        ("self.lo.map(x, x.k)", "list(string)"),
        ("self.?i", "optional_type(int)"),
        ("self.?o.p.q", "optional_type(bool)"),
        ("self.?i.optMap(x, string(x))", "optional_type(string)"),
        ("self.l[?0].orValue(1)", "int"),
        ("[]", "list(dyn)"),
        ("{}", "map(dyn, dyn)"),
        ("[] + [1]", "list(int)"),
        ("self.b ? [] : self.ls", "list(string)"),
        ("type(1)", "type(int)"),
        ("self.s.split(',')", "list(string)"),
        ("self.t - self.t", "duration"),
        ("self.m.transformMap(k, v, string(v))", "map(string, string)"),
        ("self.l.transformMapEntry(i, v, {v: i})", "map(int, int)"),
        ("self.lo.sortBy(x, x.v)[0].k", "string"),
        ("self.ll.flatten()", "list(int)"),
        ("optional.none()", "optional_type(dyn)"),
        ("url(self.s).getQuery()", "map(string, list(string))"),
        ("format.dns1123Label().validate(self.s)", "optional_type(list(string))"),
        ("self.a__dash__b", "int"),
        ("self.__namespace__", "string"),
        ("self.e.metadata.name + self.e.kind", "string"),
        ("null", "null"),
        ("self", "selfType"),
    ] {
        let found = Program::check(text, &env).map_or_else(|issues| issues.to_string(), |found| found.to_string());
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn each_place_has_variables_of_its_own() {
    let check =
        |env: &Env, text: &str| Program::check(text, env).map_or_else(|why| why.to_string(), |found| found.to_string());
    let admission = Env::of_admission(Type::Dyn).with_authorizer();
    for text in [
        "object.spec.replicas <= 5 && oldObject == null",
        "request.operation in ['CREATE', 'UPDATE'] && request.userInfo.groups.exists(g, g == 'system:masters')",
        "request.userInfo.extra['a'][0] == 'b' && request.options.x == 1",
        "authorizer.group('apps').resource('deployments').namespace('n').name('m').check('create').allowed()",
        "authorizer.requestResource.subresource('status').check('update').reason() == 'x'",
        "authorizer.serviceAccount('n', 'a').path('/x').check('get').errored()",
        "namespaceObject.metadata.labels.exists(k, k == 'a') && namespaceObject.status.phase == 'Active'",
        "namespaceObject.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')",
        "request.kind.kind == 'Pod' && request.resource.resource == 'pods' && !request.dryRun",
    ] {
        assert_eq!(check(&admission, text), "bool", "{text}");
    }
    assert!(check(&admission, "request.uid == ''").contains("undefined field 'uid'"));
    assert!(check(&admission, "request.userInfo.name == ''").contains("undefined field 'name'"));
    assert!(check(&admission, "namespaceObject.metadata.uid == ''").contains("undefined field 'uid'"));
    assert!(
        check(&admission, "authorizer.resource('a')")
            .contains("'resource' applied to 'kubernetes.authorization.Authorizer.(string)'")
    );
    assert!(check(&admission, "params.x").contains("undeclared reference to 'params'"));
    assert!(check(&admission, "object.x + 1").starts_with("int"), "dyn fits");
    let composed = Env::of_admission(Type::Dyn).with_composed(&[("n", Type::Int), ("any", Type::Dyn)]);
    assert_eq!(check(&composed, "variables.n > 1 && variables.any.x == 2"), "bool");
    assert!(check(&composed, "variables.m > 1").contains("undefined field 'm'"));
    assert!(check(&composed, "variables.n > 'a'").contains("(int, string)"));
    let patches = Env::of_admission(Type::Dyn).with_patches();
    assert_eq!(check(&patches, "Object{spec: Object.spec{replicas: 1, ?a: optional.none()}}"), "Object");
    let patch = "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: object.x}]";
    assert_eq!(check(&patches, patch), "list(JSONPatch)");
    assert!(
        check(&patches, "JSONPatch{op: 1}")
            .contains("expected type of field 'op' is 'string' but provided type is 'int'")
    );
    let devices = Env::of_devices();
    assert_eq!(
        check(
            &devices,
            "device.driver == 'd' && device.attributes['d'].x && device.capacity['d'].y.isGreaterThan(quantity('1'))"
        ),
        "bool"
    );
    assert_eq!(check(&devices, "cel.bind(d, device.attributes['d'], d.a && d.b > 1)"), "bool");
    assert_eq!(check(&devices, "device.attributes['d'].x"), "any");
    assert!(check(&devices, "device.nope").contains("undefined field 'nope'"));
    assert!(check(&devices, "device.attributes.d.x.all(y, true)").contains("expression of type 'any' cannot be range"));
    assert_eq!(check(&Env::of_claims(), "claims.email_verified == true && claims.sub.startsWith('a')"), "bool");
    assert_eq!(check(&Env::of_claims(), "claims.groups"), "any");
    assert_eq!(check(&Env::of_user(), "!user.username.startsWith('system:') && user.groups.all(g, g != 'a')"), "bool");
    let authorization = Env::of_authorization();
    let text = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'kube-system' && request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'a')";
    assert_eq!(check(&authorization, text), "bool");
    assert!(check(&authorization, "request.verb == ''").contains("undefined field 'verb'"));
}

#[test]
fn what_is_not_known_of_a_kind_may_be_anything() {
    let schema = json!({"type": "object", "properties": {"at": {}, "list": {"type": "array", "items": {}}}});
    let env = Env::of_admission(Type::of_schema(&schema, "Pod", true).expect("a schema"));
    let told = Program::check("object.at > 1 && object.list[0].x == 'a' && object.metadata.name == ''", &env);
    assert!(matches!(told, Ok(Type::Bool)), "{told:?}");
    assert!(Program::check("object.nope == 1", &env).is_err());
}

#[test]
fn old_values_may_be_optional() {
    let schema = schema();
    let env = Env::of_rules(&schema, false, true).expect("a schema");
    let check = |text: &str| Program::check(text, &env).err().map(|issues| issues.to_string()).unwrap_or_default();
    assert_eq!(check("!oldSelf.hasValue() || oldSelf.value().i == self.i"), "");
    assert_eq!(check("oldSelf.?i.orValue(1) == 1 && oldSelf.optMap(o, o.i == self.i).orValue(true)"), "");
    assert!(check("oldSelf.i + self.i > 5").contains("'_+_' applied to '(optional_type(int), int)'"));
    assert!(
        check("oldSelf.l.all(x, x == x)").contains("expression of type 'optional_type(list(int))' cannot be range")
    );
}

#[test]
fn depth_and_length_have_bounds() {
    let chain = |count: usize| format!("{}self.b", "self.b == ".repeat(count));
    assert_eq!(told(&chain(249)), None);
    assert!(told(&chain(250)).is_some_and(|told| told.contains("max recursion depth exceeded")));
    assert_eq!(told(&format!("{}true", "self.b && ".repeat(2000))), None);
    assert!(told(&format!("{}1{}", "(".repeat(500), ")".repeat(500))).is_some_and(|told| told.contains("depth")));
    let long = format!("'{}' == ''", "a".repeat(100_001));
    assert!(told(&long).is_some_and(|told| told.contains("expression code point size exceeds limit")));
    // Types that double with each step are given up.
    let doubled = format!("[1]{}.size() == 1", ".map(x, {x: x})".repeat(60));
    assert!(told(&doubled).is_some_and(|told| told.contains("too complex")));
}

/// Rules of definitions that clusters really have, each with the part of the schema that it is about.
#[test]
fn rules_of_well_known_definitions_are_taken() {
    let known: Vec<Value> = serde_json::from_str(include_str!("testdata/known.json")).expect("a list");
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in &known {
        for rule in entry["rules"].as_array().expect("rules") {
            let optional = rule["optionalOldSelf"] == true;
            let env = Env::of_rules(&entry["schema"], entry["root"] == true, optional).expect("a schema");
            for (field, expected) in [("rule", "bool"), ("messageExpression", "string")] {
                let Some(text) = rule[field].as_str() else { continue };
                let found = Program::check(text, &env);
                let shown = found.map_or_else(|issues| issues.to_string(), |found| found.to_string());
                count += 1;
                if shown != expected {
                    wrong.push(format!("{}: {text}: {shown}", entry["of"]));
                }
            }
        }
    }
    assert!(count > 200, "only {count} rules");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
