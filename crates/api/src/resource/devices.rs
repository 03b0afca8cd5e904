//! What claims, classes and slices share: lists and sets, selectors, configurations, names of drivers, pools and attributes.

use machinery::cel::{EXPRESSION_COST_MAX, Env, Program, Type};
use machinery::field::{Errors, FieldError, Problem, shown};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use crate::check;

const SELECTORS_MAX: usize = 32;
const CONFIGS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const DRIVER_MAX: usize = 63;
const IDENTIFIER_MAX: usize = 32;
const POOL_NAME_MAX: usize = 253;
const CONDITIONS_MAX: usize = 4;
pub(super) const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Looks at each item of a list, and no further at one that is too long.
pub(super) fn list<'a>(
    list: &Node<'a>,
    count_max: usize,
    errors: &mut Errors,
    mut each: impl FnMut(&Node<'a>, &mut Errors),
) -> bool {
    if list.len() > count_max {
        errors.too_many(list, list.len(), count_max);
        return false;
    }
    list.items().for_each(|item| each(&item, errors));
    true
}

/// As `list`, where no two items may have the same key, which is written as messages show it. The item is what is reported.
pub(super) fn set<'a>(
    items: &Node<'a>,
    count_max: usize,
    key: impl Fn(&Node<'a>) -> String,
    errors: &mut Errors,
    each: impl FnMut(&Node<'a>, &mut Errors),
) {
    if !list(items, count_max, errors, each) {
        return;
    }
    let mut seen: Vec<String> = Vec::new();
    for item in items.items() {
        let key = key(&item);
        if seen.contains(&key) {
            errors.push(FieldError::new(Problem::Duplicate, &item.path, key, ""));
        } else {
            seen.push(key);
        }
    }
}

/// The text of a key as messages show it.
pub(super) fn text_key(text: &str) -> String {
    shown(&text.into())
}

pub(super) fn name_key(item: &Node) -> String {
    text_key(item.text("name"))
}

/// Expressions must fit what is known of a device.
pub(super) fn selectors(selectors: &Node, errors: &mut Errors) {
    list(selectors, SELECTORS_MAX, errors, |selector, errors| {
        let cel = selector.at("cel");
        if !cel.exists() {
            return errors.required(&cel, "");
        }
        let expression = cel.at("expression");
        if expression.str().len() > EXPRESSION_BYTES_MAX {
            return errors.too_long(&expression, EXPRESSION_BYTES_MAX);
        }
        if let Some(detail) = wrong_selector(expression.str()) {
            errors.invalid_value(&expression.path, &expression.str().into(), detail);
        } else if Program::selector_cost(expression.str()).is_some_and(|cost| cost > EXPRESSION_COST_MAX) {
            errors.forbidden(&expression, "too complex, exceeds cost limit");
        }
    });
}

fn wrong_selector(text: &str) -> Option<String> {
    match Program::check(text, &Env::of_devices()) {
        Err(why) => Some(format!("compilation failed: {why}")),
        Ok(Type::Bool | Type::Any) => None,
        Ok(found) => Some(format!("must evaluate to bool or the unknown type, not {}", found.answered())),
    }
}

/// What drivers are told. Parameters that are kept as they were may be longer than new ones.
pub(super) fn configs(configs: &Node, stored: bool, errors: &mut Errors) {
    list(configs, CONFIGS_MAX, errors, |one, errors| config(one, stored, errors));
}

pub(super) fn config(config: &Node, stored: bool, errors: &mut Errors) {
    let opaque = config.at("opaque");
    if !opaque.exists() {
        return errors.required(&opaque, "");
    }
    driver_name(&opaque.at("driver"), errors);
    let bytes_max = if stored { usize::MAX } else { PARAMETERS_BYTES_MAX };
    raw_extension(&opaque.at("parameters"), bytes_max, errors);
}

pub(super) fn raw_extension(data: &Node, bytes_max: usize, errors: &mut Errors) {
    if !data.exists() {
        errors.required(data, "");
    } else if data.value.to_string().len() > bytes_max {
        errors.too_long(data, bytes_max);
    } else if !data.value.is_object() {
        errors.invalid_value(&data.path, &"<value omitted>".into(), "must be a valid JSON object");
    }
}

pub(super) fn driver_name(name: &Node, errors: &mut Errors) {
    if name.str().is_empty() {
        errors.required(name, "");
        return;
    }
    if name.str().len() > DRIVER_MAX {
        errors.too_long(name, DRIVER_MAX);
    }
    check::rule(name, names::dns_subdomain(&name.str().to_lowercase()), errors);
}

pub(super) fn pool_name(name: &Node, errors: &mut Errors) {
    if name.str().is_empty() {
        return errors.required(name, "");
    }
    if name.str().len() > POOL_NAME_MAX {
        errors.too_long(name, POOL_NAME_MAX);
    }
    for part in name.str().split('/') {
        for problem in names::dns_subdomain(part) {
            errors.invalid_value(&name.path, &part.into(), problem);
        }
    }
}

/// A name that is checked even where it is missing, which is then shown as `""`.
pub(super) fn dns_label(name: &Node, errors: &mut Errors) {
    for problem in names::dns_label(name.str()) {
        errors.invalid_value(&name.path, &name.str().into(), problem);
    }
}

pub(super) fn label_name(name: &Node, errors: &mut Errors) {
    for problem in names::qualified_name(name.str()) {
        errors.invalid_value(&name.path, &name.str().into(), problem);
    }
}

/// `domain/identifier`, both of them.
pub(super) fn fully_qualified_name(name: &Node, errors: &mut Errors) {
    qualified_name(name, errors);
    if !name.str().contains('/') {
        errors.invalid(name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// An identifier with an optional domain before it.
pub(super) fn qualified_name(name: &Node, errors: &mut Errors) {
    match name.str().split('/').collect::<Vec<_>>().as_slice() {
        [identifier] => c_identifier(name, identifier, errors),
        [domain, identifier] => {
            let part = Value::from(*domain);
            match *domain {
                "" => errors.invalid_value(&name.path, &part, "the domain must not be empty"),
                _ => driver_name(&Node::new(&part, name.path.clone()), errors),
            }
            match *identifier {
                "" => errors.invalid_value(&name.path, &"".into(), "the name must not be empty"),
                identifier => c_identifier(name, identifier, errors),
            }
        }
        // Upstream has nothing to say about more than one slash.
        _ => {}
    }
}

fn c_identifier(at: &Node, identifier: &str, errors: &mut Errors) {
    if identifier.len() > IDENTIFIER_MAX {
        errors.too_long(at, IDENTIFIER_MAX);
    }
    for sentence in names::c_identifier(identifier) {
        errors.invalid_value(&at.path, &identifier.into(), sentence);
    }
}

/// Conditions that a device waits for, and those that end the wait: neither goes without the other.
pub(super) fn binding_conditions(device: &Node, errors: &mut Errors) {
    let (wanted, failed) = (device.at("bindingConditions"), device.at("bindingFailureConditions"));
    for conditions in [&wanted, &failed] {
        list(conditions, CONDITIONS_MAX, errors, label_name);
    }
    let mut seen: Vec<&str> = Vec::new();
    for condition in wanted.items() {
        if seen.contains(&condition.str()) {
            errors.duplicate(&condition);
        }
        seen.push(condition.str());
    }
    let mut seen: Vec<&str> = Vec::new();
    for condition in failed.items() {
        if seen.contains(&condition.str()) {
            errors.duplicate(&condition);
        }
        seen.push(condition.str());
        if wanted.items().any(|one| one.str() == condition.str()) {
            errors.invalid(&condition, "bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    if wanted.is_empty() && !failed.is_empty() {
        errors.invalid(&wanted, "bindingConditions are required to use bindingFailureConditions");
    }
    if failed.is_empty() && !wanted.is_empty() {
        errors.invalid(&failed, "bindingFailureConditions are required to use bindingConditions");
    }
}

/// An effect where there is one.
pub(super) fn effect(effect: &Node, errors: &mut Errors) {
    if !effect.str().is_empty() && !EFFECTS.contains(&effect.str()) {
        errors.not_supported(effect, EFFECTS);
    }
}

/// A share of a device, as its UID.
pub(super) fn share_id(id: &Node, errors: &mut Errors) {
    if !id.exists() {
        return;
    }
    let text = id.str();
    if let Some(problem) = uuid_problem(text) {
        errors.invalid(id, format!("error validating uid: {problem}"));
    } else if text.len() != 36 || text != text.to_lowercase() {
        errors.invalid(
            id,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
             hexadecimal characters",
        );
    }
}

/// Why a text is a UUID in none of the forms that Go's library reads.
fn uuid_problem(text: &str) -> Option<String> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let bad = || Some("invalid UUID format".to_owned());
    let bare = match text.len() {
        32 | 36 => text,
        38 => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(inner) => inner,
            None => return Some("invalid bracketed UUID format".into()),
        },
        45 => match text.split_at_checked(9) {
            Some((urn, rest)) if urn.eq_ignore_ascii_case("urn:uuid:") => rest,
            Some((urn, _)) => return Some(format!("invalid urn prefix: {urn:?}")),
            None => return bad(),
        },
        length => return Some(format!("invalid UUID length: {length}")),
    };
    let is_good = |(at, byte): (usize, u8)| match bare.len() {
        36 if DASHES.contains(&at) => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    if bare.bytes().enumerate().all(is_good) { None } else { bad() }
}
