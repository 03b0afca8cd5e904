use serde_json::json;

use super::*;

const LABELS: [(&str, &str); 3] = [("app", "web"), ("tier", "front"), ("n", "7")];

fn get(key: &str) -> Option<&'static str> {
    LABELS.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}

#[test]
fn label_selectors_match() {
    for (text, expected) in [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web , tier", true),
        ("app!=web", false),
        ("other!=x", true),
        ("app in (web,db)", true),
        ("app in (db)", false),
        ("app notin (db),!gone", true),
        ("!app", false),
        ("n>5", true),
        ("n<5", false),
        ("app>5", false),
        ("app=", false),
        ("gone in (,)", false),
        ("in", false),
    ] {
        let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.matches(get), expected, "for {text}");
    }
}

#[test]
fn label_selector_errors() {
    for (text, expected) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        assert_eq!(LabelSelector::parse(text).expect_err("bad").to_string(), expected, "for {text}");
    }
    let error = LabelSelector::parse("a/b/c=d").expect_err("bad").to_string();
    assert!(
        error.starts_with("unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"),
        "{error}"
    );
}

#[test]
fn selectors_of_objects() {
    let check = |selector: Value, expected: bool| {
        assert_eq!(LabelSelector::from_object(&selector).expect("good").matches(get), expected, "for {selector}");
    };
    check(json!(null), false);
    check(json!({}), true);
    check(json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}), true);
    check(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false);
    let bad = json!({"matchExpressions": [{"key": "app", "operator": "Like"}]});
    assert_eq!(
        LabelSelector::from_object(&bad).expect_err("bad").to_string(),
        "\"Like\" is not a valid label selector operator"
    );
}

#[test]
fn field_selectors() {
    let selector = FieldSelector::parse("metadata.name=x,status.phase!=Run\\,ning,,a==b").expect("good");
    let expected = [
        ("metadata.name".to_string(), FieldOperator::Equals, "x".to_string()),
        ("status.phase".to_string(), FieldOperator::NotEquals, "Run,ning".to_string()),
        ("a".to_string(), FieldOperator::Equals, "b".to_string()),
    ];
    assert_eq!(selector.requirements(), expected);
    assert_eq!(FieldSelector::parse("x").expect_err("bad").to_string(), "invalid selector: 'x'; can't understand 'x'");
    assert_eq!(FieldSelector::parse("é").expect_err("bad").to_string(), "invalid selector: 'é'; can't understand 'é'");
    assert_eq!(
        FieldSelector::parse("x=\\y").expect_err("bad").to_string(),
        "invalid field selector: invalid escape sequence: \\y"
    );
    let get = |field: &str| if field == "metadata.name" { "x".into() } else { "".into() };
    assert!(FieldSelector::parse("metadata.name=x,other!=y").expect("good").matches(get));
    assert!(!FieldSelector::parse("other=y").expect("good").matches(get));
}

#[test]
fn requirements_hold_or_not() {
    let none: Option<&str> = None;
    for (operator, values, label, expected) in [
        (Operator::In, vec!["a", "b"], Some("a"), true),
        (Operator::In, vec!["a"], Some("c"), false),
        (Operator::In, vec!["a"], none, false),
        (Operator::NotIn, vec!["a"], Some("c"), true),
        (Operator::NotIn, vec!["a"], none, true),
        (Operator::NotIn, vec!["a"], Some("a"), false),
        (Operator::Exists, vec![], Some(""), true),
        (Operator::Exists, vec![], none, false),
        (Operator::DoesNotExist, vec![], none, true),
        (Operator::DoesNotExist, vec![], Some("x"), false),
        (Operator::GreaterThan, vec!["5"], Some("6"), true),
        (Operator::GreaterThan, vec!["5"], Some("5"), false),
        (Operator::GreaterThan, vec!["5"], Some("x"), false),
        (Operator::LessThan, vec!["5"], Some("-1"), true),
        (Operator::LessThan, vec!["5"], none, false),
        (Operator::Equals, vec!["a"], Some("a"), true),
        (Operator::NotEquals, vec!["a"], none, true),
    ] {
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        let requirement = Requirement::new("k", operator, values).expect("good");
        assert_eq!(requirement.matches(label), expected, "{operator:?} {label:?}");
    }
}

#[test]
fn selectors_are_put_together() {
    let both = LabelSelector::parse("app=web").unwrap().and(LabelSelector::parse("tier in (front)").unwrap());
    assert!(both.matches(get) && both.requirements().len() == 2);
    let never = LabelSelector::parse("app=web").unwrap().and(LabelSelector::from_object(&Value::Null).unwrap());
    assert!(!never.matches(get));
    assert!(LabelSelector::parse("").unwrap().matches_everything() && !never.matches_everything());
    let object = json!({"metadata": {"labels": {"app": "web"}}});
    assert!(LabelSelector::parse("app=web,!tier").unwrap().matches_object(&object));
    assert!(!LabelSelector::parse("app=web").unwrap().matches_object(&json!({})));
}
