//! Go's functions, and the two that kubectl adds.

use base64::Engine;
use serde_json::Value;

use super::run::truth;
use super::{CallError, Error};

pub(super) fn call(name: &str, arguments: Vec<Option<Value>>) -> Result<Option<Value>, Error> {
    let failed = |error: CallError| Error::Call { function: name.to_string(), error };
    let first = arguments.first().and_then(Option::as_ref);
    let second = arguments.get(1).and_then(Option::as_ref);
    let others = &arguments[1.min(arguments.len())..];
    let text = || first.map(shown).unwrap_or_default();
    Ok(Some(match name {
        "and" | "or" => return Ok(arguments.into_iter().next_back().flatten()),
        "not" => (!truth(first)).into(),
        "len" => length(first).map_err(failed)?.into(),
        "index" => return index(first, others).map_err(failed),
        "slice" => slice(first, others).map_err(failed)?,
        "exists" => exists(first, others).into(),
        "base64decode" => decoded(&text()).map_err(failed)?.into(),
        "print" => printed(&arguments).into(),
        "println" => {
            let texts: Vec<String> = arguments.iter().map(or_nil).collect();
            format!("{}\n", texts.join(" ")).into()
        }
        "printf" => printf(&text(), others).into(),
        "html" => text().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;").into(),
        "js" => javascript(&text()).into(),
        "urlquery" => form_urlencoded::byte_serialize(text().as_bytes()).collect::<String>().into(),
        "eq" => others.iter().any(|other| same(first, other.as_ref())).into(),
        "ne" => (!same(first, second)).into(),
        "lt" | "le" | "gt" | "ge" => {
            let order = order(first, second).ok_or_else(|| failed(CallError::Incompatible))?;
            match name {
                "lt" => order.is_lt(),
                "le" => order.is_le(),
                "gt" => order.is_gt(),
                _ => order.is_ge(),
            }
            .into()
        }
        _ => return Err(Error::NoFunction(name.to_string())),
    }))
}

fn or_nil(value: &Option<Value>) -> String {
    value.as_ref().map_or("<nil>".into(), shown)
}

fn length(value: Option<&Value>) -> Result<usize, CallError> {
    match value {
        Some(Value::Array(items)) => Ok(items.len()),
        Some(Value::Object(map)) => Ok(map.len()),
        Some(Value::String(text)) => Ok(text.len()),
        Some(_) => Err(CallError::LengthOf("untyped value")),
        None => Err(CallError::LengthOf("nil pointer")),
    }
}

/// A number that counts items; one that is none is beyond every list.
fn position(value: &serde_json::Number) -> usize {
    value.as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX)
}

fn index(value: Option<&Value>, keys: &[Option<Value>]) -> Result<Option<Value>, CallError> {
    let mut current = value.ok_or(CallError::IndexOfNil)?;
    for key in keys {
        current = match (current, key) {
            (Value::Array(items), Some(Value::Number(at))) => {
                let at = position(at);
                items.get(at).ok_or(CallError::IndexOutOfRange(at))?
            }
            (Value::Object(map), Some(Value::String(key))) => match map.get(key) {
                Some(found) => found,
                None => return Ok(None),
            },
            _ => return Err(CallError::NoIndex),
        };
    }
    Ok(Some(current.clone()))
}

fn slice(value: Option<&Value>, bounds: &[Option<Value>]) -> Result<Value, CallError> {
    let bound = |at: usize| bounds.get(at).and_then(Option::as_ref).and_then(Value::as_u64).map(|at| at as usize);
    let (from, to) = (bound(0).unwrap_or(0), bound(1));
    match value {
        Some(Value::String(text)) => Ok(text.get(from..to.unwrap_or(text.len())).ok_or(CallError::OutOfRange)?.into()),
        Some(Value::Array(items)) => {
            Ok(items.get(from..to.unwrap_or(items.len())).ok_or(CallError::OutOfRange)?.to_vec().into())
        }
        _ => Err(CallError::NoSlice),
    }
}

/// Whether a path of keys and positions leads to something.
fn exists(value: Option<&Value>, keys: &[Option<Value>]) -> bool {
    let step = |current: Option<&'_ Value>, key: &Option<Value>| match (current, key) {
        (Some(Value::Object(map)), Some(Value::String(key))) => map.get(key).cloned(),
        (Some(Value::Array(items)), Some(Value::Number(at))) => items.get(position(at)).cloned(),
        _ => None,
    };
    let found = keys.iter().fold(value.cloned(), |current, key| step(current.as_ref(), key));
    found.is_some_and(|value| !value.is_null())
}

fn decoded(text: &str) -> Result<String, CallError> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// As Go's `%v` prints it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// Between two values of which neither is a text stands a space.
fn printed(arguments: &[Option<Value>]) -> String {
    let is_text = |value: &Option<Value>| matches!(value, Some(Value::String(_)));
    let mut out = String::new();
    for (at, value) in arguments.iter().enumerate() {
        if at > 0 && !is_text(value) && !is_text(&arguments[at - 1]) {
            out.push(' ');
        }
        out.push_str(&or_nil(value));
    }
    out
}

fn javascript(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\\' | '\'' | '"' => out.extend(['\\', letter]),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", letter as u32)),
            control if (control as u32) < 0x20 => out.push_str(&format!("\\u{:04X}", control as u32)),
            other => out.push(other),
        }
    }
    out
}

fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

fn order(left: Option<&Value>, right: Option<&Value>) -> Option<std::cmp::Ordering> {
    match (left?, right?) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn printf(format: &str, arguments: &[Option<Value>]) -> String {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut options = String::new();
        while let Some(option) =
            letters.peek().copied().filter(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | '#' | ' '))
        {
            options.push(option);
            letters.next();
        }
        let verb = letters.next().unwrap_or('%');
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = arguments.next() else {
            out.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        let text = match (verb, value) {
            ('q', Some(value)) => format!("{:?}", shown(value)),
            ('f', Some(Value::Number(number))) => format!("{:.6}", number.as_f64().unwrap_or(0.0)),
            ('x', Some(Value::Number(number))) => format!("{:x}", number.as_i64().unwrap_or(0)),
            (_, Some(value)) => shown(value),
            (_, None) => "<nil>".into(),
        };
        let left = options.starts_with('-');
        let width: usize =
            options.trim_start_matches('-').split('.').next().and_then(|width| width.parse().ok()).unwrap_or(0);
        out.push_str(&if left { format!("{text:<width$}") } else { format!("{text:>width$}") });
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn called(name: &str, arguments: &[Value]) -> Result<Value, String> {
        let arguments = arguments.iter().map(|value| Some(value.clone()).filter(|value| !value.is_null())).collect();
        call(name, arguments).map(Option::unwrap_or_default).map_err(|error| error.to_string())
    }

    #[test]
    fn functions_answer_as_gos() {
        let check = |name: &str, arguments: Value, expected: Value| {
            let arguments = arguments.as_array().unwrap();
            assert_eq!(called(name, arguments), Ok(expected), "{name} {arguments:?}");
        };
        check("len", json!([{"a": 1, "b": 2}]), json!(2));
        check("len", json!(["abc"]), json!(3));
        check("index", json!([{"a": [1, 2]}, "a", 1]), json!(2));
        check("index", json!([{"a": 1}, "b"]), Value::Null);
        check("slice", json!(["abcdef", 1, 3]), json!("bc"));
        check("slice", json!([[1, 2, 3], 1]), json!([2, 3]));
        check("exists", json!([{"a": [{"b": 1}]}, "a", 0, "b"]), json!(true));
        check("exists", json!([{"a": 1}, "b", "c"]), json!(false));
        check("eq", json!([1, 2, 1.0]), json!(true));
        check("ne", json!(["a", "a"]), json!(false));
        check("lt", json!(["a", "b"]), json!(true));
        check("ge", json!([2, 3]), json!(false));
        check("print", json!(["a", 1, 2, "b"]), json!("a1 2b"));
        check("println", json!(["a", 1]), json!("a 1\n"));
        check(
            "printf",
            json!(["%5s|%-3d|%x|%f|%%|%v", "a", 1, 255, 0.5]),
            json!("    a|1  |ff|0.500000|%|%!v(MISSING)"),
        );
        check("html", json!(["<a \"b\">"]), json!("&lt;a &#34;b&#34;&gt;"));
        check("js", json!(["it's <b>"]), json!("it\\'s \\u003Cb\\u003E"));
        check("urlquery", json!(["a b&c"]), json!("a+b%26c"));
        check("base64decode", json!(["aGk="]), json!("hi"));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let check = |name: &str, arguments: Value, error: &str| {
            assert_eq!(called(name, arguments.as_array().unwrap()).unwrap_err(), error);
        };
        check("len", json!([null]), "error calling len: len of nil pointer");
        check("len", json!([1]), "error calling len: len of untyped value");
        check("index", json!([null, 1]), "error calling index: index of untyped nil");
        check("index", json!([[1], 4]), "error calling index: index out of range: 4");
        check("index", json!([1, 4]), "error calling index: cannot index this value");
        check("slice", json!(["abc", 7]), "error calling slice: index out of range");
        check("lt", json!(["a", 1]), "error calling lt: incompatible types for comparison");
        check("nothing", json!([]), "function \"nothing\" not defined");
        assert!(called("base64decode", &[json!("%")]).unwrap_err().starts_with("error calling base64decode:"));
    }
}
