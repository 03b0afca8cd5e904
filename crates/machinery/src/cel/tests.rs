use serde_json::{Value, json};

use super::*;
use crate::schema::structural::Structural;

fn eval(expression: &str) -> String {
    let object = json!({
        "name": "web", "replicas": 3, "ratio": 2, "empty": [], "when": "2026-01-02T03:04:05Z", "wait": "90s",
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}], "tags": ["b", "a"],
        "labels": {"app": "x", "tier": "y"}, "cpu": "500m", "namespace": "odd", "dash-ed": 1,
    });
    let schema = json!({"type": "object", "properties": {
        "ratio": {"type": "number"}, "when": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    }, "x-kubernetes-preserve-unknown-fields": true});
    let schema = Structural::parse(&schema);
    let program = match Program::parse(expression) {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    let mut budget = OBJECT_COST_MAX;
    let outcome = program.eval(&[("self", Val::json(&object, Some(&schema)))], &mut budget);
    outcome.map_or_else(|error| error.to_string(), |value| texts::shown(&value))
}

fn check(expression: &str, expected: &str) {
    assert_eq!(eval(expression), expected, "{expression}");
}

#[test]
fn operators() {
    check("1 + 2 * 3", "7");
    check("(1 + 2) * 3 - -1", "10");
    check("7 / 2", "3");
    check("7 % 2", "1");
    check("1 / 0", "division by zero");
    check("9223372036854775807 + 1", "integer overflow");
    check("-9223372036854775808", "-9223372036854775808");
    check("1.5 + 1.0", "2.5");
    check("'a' + \"b\"", "ab");
    check("[1] + [2, 3]", "[1, 2, 3]");
    check("1 < 2 && 2 <= 2 && !(3 > 4)", "true");
    check("1 == 1.0", "true");
    check("'1' == 1", "false");
    check("true ? 'yes' : 'no'", "yes");
    check("2 in [1, 2]", "true");
    check("'app' in self.labels", "true");
    check("1 + 'a'", "no such overload");
    check("r'\\d' == '\\\\d'", "true");
    check("b'abc' == bytes('abc')", "true");
    check("0x10 == 16 && 1u == uint(1)", "true");
}

#[test]
fn an_error_on_one_side_is_forgiven_where_the_other_decides() {
    check("self.missing == 1 || true", "true");
    check("self.missing == 1 && false", "false");
    check("self.missing == 1 || false", "no such key: missing");
}

#[test]
fn fields() {
    check("self.name", "web");
    check("self.ports[1].port", "443");
    check("self.ports[5]", "index out of bounds: 5");
    check("self.labels['app']", "x");
    check("has(self.labels.app) && !has(self.labels.no)", "true");
    check("self.__namespace__ == 'odd' && self.dash__dash__ed == 1", "true");
    check("type(self.ratio) == double && type(self.replicas) == int", "true");
    check("self.when < timestamp('2027-01-01T00:00:00Z') && self.when.getFullYear() == 2026", "true");
    check("self.wait == duration('1m30s') && self.wait.getSeconds() == 90", "true");
    check("self.tags == ['a', 'b']", "true");
    check("self.?missing.orValue('none')", "none");
    check("self.?labels.app.orValue('none')", "x");
    check("self.labels[?'no'].hasValue()", "false");
    check("size(self) > 3", "true");
}

#[test]
fn macros() {
    check("self.ports.all(p, p.port > 10)", "true");
    check("self.ports.exists(p, p.name == 'http')", "true");
    check("self.ports.exists_one(p, p.port > 10)", "false");
    check("self.ports.map(p, p.port)", "[80, 443]");
    check("self.ports.map(p, p.port > 100, p.name)", "[https]");
    check("self.ports.filter(p, p.port > 100).size()", "1");
    check("self.labels.all(k, self.labels[k].size() == 1)", "true");
    check("self.labels.all(k, v, k != v)", "true");
    check("cel.bind(x, self.replicas * 2, x + x)", "12");
    check("self.tags.map(t, self.ports.map(p, p.name + t).size())", "[2, 2]");
    check("optional.of(1).optMap(x, x + 1).value()", "2");
    check("[3, 1, 2].sortBy(x, -x)", "[3, 2, 1]");
    check("{'a': 1, 'b': 2}.transformMapEntry(k, v, v > 1, {v: k})[2]", "b");
}

#[test]
fn texts_and_lists() {
    check("'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.contains('ell')", "true");
    check("'abc-123'.matches('^[a-z]+-[0-9]+$')", "true");
    check("'abc 123'.find('[0-9]+')", "123");
    check("'a,b,c'.split(',')", "[a, b, c]");
    check("['a', 'b'].join('-')", "a-b");
    check("'hello'.substring(1, 3)", "el");
    check("'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3", "true");
    check("'Hello'.lowerAscii() + 'x'.upperAscii() + ' y '.trim()", "helloXy");
    check("'hello'.replace('l', 'L')", "heLLo");
    check("'%s has %d of %.1f'.format(['x', 3, 2.5])", "x has 3 of 2.5");
    check("[3, 1, 2].max() == 3 && [3, 1, 2].min() == 1 && [1, 2].sum() == 3 && [1, 2].isSorted()", "true");
    check("sets.contains([1, 2, 3], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 2], [2, 1])", "true");
    check("int('12') + int(2.9) == 14 && string(5) == '5' && double('1.5') == 1.5", "true");
    check("[[1], [2, [3]]].flatten()", "[1, 2, [3]]");
    check("[[1], [2, [3]]].flatten(2)", "[1, 2, 3]");
    check("[[1]].flatten(-1)", "level must be non-negative");
    check("[1, 2, 3, 4].slice(3, 0)", "cannot slice(3, 0), start index must be less than or equal to end index");
    check("[1, 2, 3, 4].slice(0, 10)", "cannot slice(0, 10), list is length 4");
    check("[1, 2, 3, 4].slice(-5, -3)", "cannot slice(-5, -3), negative indexes not supported");
    check("optional.unwrap([optional.of(42), optional.none()])", "[42]");
    check("[optional.of(1), optional.none()].unwrapOpt()", "[1]");
    check("[3, 1, 2].sort().reverse() + [1, 1].distinct()", "[3, 2, 1, 1]");
    check(
        "type(timestamp(0)) == google.protobuf.Timestamp && type(duration('1s')) == google.protobuf.Duration",
        "true",
    );
    check("type(ip('10.0.0.1')) == net.IP && type(optional.of(1)) == optional_type", "true");
    check("string(1e21) + ' ' + string(0.00001) + ' ' + string(1.5) + ' ' + string(100.0)", "1e+21 1e-05 1.5 100");
    check("'%e %x %X %b %o'.format([1234.5, 255, 'az', -5, 8])", "1.234500×10⁰³ ff 617A -101 10");
    check("'aaa'.replace('a', 'b', 2) + 'abc'.replace('', '-')", "bba-a-b-c-");
}

#[test]
fn kubernetes_libraries() {
    check("quantity(self.cpu).isLessThan(quantity('1')) && isQuantity('1Gi') && !isQuantity('x')", "true");
    check("quantity('1Gi').add(quantity('1Gi')).compareTo(quantity('2Gi'))", "0");
    check("url('https://a.b:80/p?x=1').getHost()", "a.b:80");
    check("url('https://a.b:80/p?x=1&x=2').getQuery()['x']", "[1, 2]");
    check("isURL('https://a') && !isURL('a b')", "true");
    check("ip('10.0.0.1').family() == 4 && isIP('::1') && !isIP('x')", "true");
    check("cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP('11.1.2.3')", "true");
    check("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "true");
    check("format.dns1123Label().validate('Bad').hasValue()", "true");
    check("isSemver('1.2.3-rc.1+x') && !isSemver('1.2') && !isSemver('01.2.3') && isSemver('v1.2', true)", "true");
    check(
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.2').isGreaterThan(semver('1.0.0-rc.1'))",
        "true",
    );
    check("semver('1.0.0').compareTo(semver('1.0.0-rc.1')) == 1 && semver('1.2.3').minor() == 2", "true");
    check("semver('x')", "No Major.Minor.Patch elements found");
    check("matches('abc', '^a')", "true");
    check("format.uuid().validate('x').value()[0]", "does not match the UUID format");
    check("format.named('dns1123Label').value().validate('good').hasValue()", "false");
}

#[test]
fn mistakes_and_limits() {
    check("foo", "undeclared reference to 'foo' (in container '')");
    assert!(eval("'abc").starts_with("ERROR: <input>:1:1: Syntax error: token recognition error at: ''abc'"));
    let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
    assert!(eval(&deep).contains("max recursion depth exceeded"));
    let chained = format!("{}1 > 0", "1 + ".repeat(240));
    check(&chained, "true");
    let loops = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))";
    check(loops, "operation cancelled: actual cost limit exceeded");
    let object: Value = json!({});
    let program = Program::parse("self == oldSelf").expect("good");
    assert!(program.mentions("oldSelf") && !program.mentions("other"));
    assert!(
        program.eval(&[("self", Val::json(&object, None)), ("oldSelf", Val::json(&object, None))], &mut 100).is_ok()
    );
}

#[test]
fn objects_of_named_types() {
    let made = |expression: &str| {
        let program = Program::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let mut budget = OBJECT_COST_MAX;
        let value = program.eval(&[], &mut budget).expect("a value");
        (value.named().map(str::to_string), value.to_json().expect("JSON"), value.misnamed())
    };
    let spec = "Object{spec: Object.spec{replicas: 1 + 2, ?none: optional.none(), list: [Object.spec.list{a: 'x'}]}}";
    let expected = json!({"spec": {"replicas": 3, "list": [{"a": "x"}]}});
    assert_eq!(made(spec), (Some("Object".to_string()), expected, None));
    let (_, _, wrong) = made("Object{spec: Object.metadata{name: 'a'}}");
    let told = "unexpected type name \"Object.metadata\", expected \"Object.spec\", which matches field name path from root Object type";
    assert_eq!(wrong.as_deref(), Some(told));
    check("jsonpatch.escapeKey('a/b~c')", "a~1b~0c");
    check("Object{a: 1}.a + 1", "2");
    assert!(Program::check("Object{a: 1}", &Env::default()).is_err(), "only where it is declared");
    assert!(Program::check("Object{a: 1}", &Env::default().with_patches()).is_ok());
}

#[test]
fn fields_of_a_variable_are_found_wherever_they_are_read() {
    let selects = |text: &str| Program::parse(text).unwrap().selects("claims", "email");
    for text in ["claims.email", "claims.?email.orValue('')", "['a'].map(x, x + claims.email)", "has(claims.email)"] {
        assert!(selects(text), "{text}");
    }
    for text in ["claims.email_verified", "claims.user.email", "claims['email']", "'claims.email'"] {
        assert!(!selects(text), "{text}");
    }
}
