//! Small languages: quantities, selectors, CEL.

use machinery::cel::{EXPRESSION_COST_MAX, Env, Program, Val};
use machinery::quantity::Quantity;
use machinery::selector::{FieldSelector, LabelSelector};
use serde_json::json;

#[test]
fn a_quantity_and_its_canonical_form_are_the_same() {
    let examples = ["100m", "1Gi", "0.5", "1e3", "12E", "-3Ki", "1.000000001", "9223372036854775807", "+1.", ".5"];
    fuzz::text(
        "quantity",
        &examples,
        &["n", "u", "m", "k", "Mi", "Ei", "E", "e", "-", ".", "0", "999999999999999999999"],
        |text| {
            let Ok(quantity) = Quantity::parse(text) else { return };
            let canonical = quantity.canonical();
            let again =
                Quantity::parse(&canonical).unwrap_or_else(|_| panic!("{text:?} is {canonical:?}, which is none"));
            assert_eq!(again.canonical(), canonical, "{text:?}");
            assert_eq!(
                (again.sign(), again.value(), again.milli_value()),
                (quantity.sign(), quantity.value(), quantity.milli_value()),
                "{text:?}"
            );
            assert!(canonical.len() < 64, "{canonical}");
        },
    );
}

#[test]
fn a_selector_says_yes_or_no() {
    let examples = ["a=b,c!=d", "e in (x,y),f notin (z)", "!g,h", "i>5,j<7", "example.com/k==v", "a,b"];
    let labels = [("a", "b"), ("e", "x"), ("h", ""), ("i", "6"), ("j", "6"), ("example.com/k", "v")];
    let get = |key: &str| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
    fuzz::text(
        "selector",
        &examples,
        &["in", "notin", "(", ")", ",", "=", "==", "!=", "!", ">", "<", " ", "a", "b/c"],
        |text| {
            let Ok(selector) = LabelSelector::parse(text) else { return };
            // All requirements together, and each by itself, must come to the same.
            let all = selector.requirements().iter().all(|one| one.matches(get(&one.key)));
            assert_eq!(selector.matches(get), all, "{text:?}");
            assert_eq!(selector.matches_everything(), selector.requirements().is_empty());
            // A selector of fields knows fewer operators, and must not fall over the others.
            if let Ok(fields) = FieldSelector::parse(text) {
                assert_eq!(fields.matches_everything(), fields.requirements().is_empty());
            }
        },
    );
}

#[test]
fn an_expression_costs_no_more_than_it_may() {
    let examples = [
        "self.a.all(x, x > 1) && has(self.b)",
        "self.list.map(x, x + 1).filter(y, y % 2 == 0).size() < 10",
        "self.text.matches('^[a-z]+$') || self.text.startsWith(\"a\")",
        "[1, 2, 3].exists_one(i, i == 2) ? {'a': 1}.a : -1",
        "quantity('1Gi').compareTo(quantity('1G')) == 1 && ip('10.0.0.1').family() == 4",
        "duration('1h') + duration('5m') > duration('60s') && self.text.split('a').join('b') == 'x'",
        "'a'.replace('a', 'aa') + string(1.5) + b'x' == \"\" || self.list[0] in self.list",
    ];
    let words = [
        "self",
        ".a",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".map(x, x)",
        ".all(x, true)",
        " + ",
        " * ",
        "&&",
        "||",
        "?",
        ":",
        "!",
        "-",
        "'a'",
        "9223372036854775807",
        "1.0e308",
        "0",
        "self.list",
        "self.text",
        "\\",
        "'''",
        ".filter(y, y)",
        "size(",
        "r'",
    ];
    let object =
        json!({"a": [1, 2, 3], "b": {"c": true}, "list": [1, 2, 3, 4, 5, 6, 7, 8], "text": "some text of a user"});
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "integer"}}, "text": {"type": "string"},
        "b": {"type": "object", "properties": {"c": {"type": "boolean"}}},
        "list": {"type": "array", "items": {"type": "integer"}},
    }});
    fuzz::text("cel", &examples, &words, |text| {
        let env = Env::of_rules(&schema, true, false).expect("a schema that expressions can see");
        let checked = Program::check(text, &env);
        let Ok(program) = Program::parse(text) else {
            assert!(checked.is_err(), "what cannot be parsed has no type: {text:?}");
            return;
        };
        let evaluate = || {
            let mut budget = EXPRESSION_COST_MAX;
            let outcome = program.eval(&[("self", Val::json(&object, None))], &mut budget);
            assert!(budget <= EXPRESSION_COST_MAX);
            (format!("{outcome:?}"), budget)
        };
        assert_eq!(evaluate(), evaluate(), "the same again");
    });
}
