//! Validation of CustomResourceDefinition. The schemas inside have a file of their own.

use machinery::field::{Errors, FieldError, Path, Problem};
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::{Value, json};

use super::schema;
use super::selectable;
use crate::{check, webhook_client};
use machinery::names;

const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_LINK: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
const WARNING_BYTES_MAX: usize = 256;
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

pub(super) fn validate(definition: &Node, errors: &mut Errors) {
    let spec = definition.at("spec");
    let wanted = format!("{}.{}", spec.at("names").text("plural"), spec.text("group"));
    let name = definition.at("metadata").at("name");
    if name.str() != wanted {
        errors.invalid(&name, "must be spec.names.plural+\".\"+spec.group");
    }
    validate_spec(&spec, None, errors);
    stored_versions(definition, errors);
    approval(definition, errors);
    preserve_unknown_fields(&spec, errors);
}

/// Group and plural are in the name, which is for ever. Scope and kind are so once the names have been accepted.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (new_spec, old_spec) = (new.at("spec"), old.at("spec"));
    let (new_names, old_names) = (new_spec.at("names"), old_spec.at("names"));
    validate_spec(&new_spec, Some(&old_spec), errors);
    let is_established =
        |condition: Node| condition.text("type") == "Established" && condition.text("status") == "True";
    if old.at("status").each("conditions").any(is_established) {
        check::immutable(&new_spec.at("scope"), &old_spec.at("scope"), errors);
        check::immutable(&new_names.at("kind"), &old_names.at("kind"), errors);
    }
    check::immutable(&new_spec.at("group"), &old_spec.at("group"), errors);
    check::immutable(&new_names.at("plural"), &old_names.at("plural"), errors);
    stored_versions(new, errors);
    // What older servers let in may stay as it is.
    if new.value.annotation(APPROVAL) != old.value.annotation(APPROVAL) {
        approval(new, errors);
    }
    if !old_spec.flag("preserveUnknownFields") {
        preserve_unknown_fields(&new_spec, errors);
    }
}

fn preserve_unknown_fields(spec: &Node, errors: &mut Errors) {
    if spec.flag("preserveUnknownFields") {
        errors.invalid(
            &spec.at("preserveUnknownFields"),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    stored_versions(new, errors);
}

fn validate_spec(spec: &Node, old: Option<&Node>, errors: &mut Errors) {
    let group = spec.at("group");
    let problems = names::dns_subdomain(group.str());
    if group.str().is_empty() {
        errors.required(&group, "");
    } else if !problems.is_empty() {
        errors.invalid(&group, problems.join(","));
    } else if !group.str().contains('.') {
        errors.invalid(&group, "should be a domain with at least one dot");
    }
    one_of(&spec.at("scope"), &["Cluster", "Namespaced"], errors);
    for version in spec.each("versions") {
        if !version.at("schema").has("openAPIV3Schema") {
            errors.required(&version.at("schema").at("openAPIV3Schema"), "");
        }
    }
    let common: Vec<Option<Node>> = PARTS.iter().map(|part| common_part(spec, part)).collect();
    versions(spec, old, &common, errors);
    let entry = spec.at("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        check::required(&entry.at(field), "", errors);
    }
    validate_names(&entry, errors);
    let unchanged = spec.each("versions").next().is_some_and(|first| has_same_schema(&first, old));
    for (part, common) in PARTS.iter().zip(&common) {
        if let Some(common) = common {
            (part.rule)(common, unchanged, errors);
        }
    }
    selectable::common(spec, old, &common, errors);
    conversion(&spec.at("conversion"), errors);
}

/// Whether the version was there before with the same schema.
fn has_same_schema(version: &Node, old: Option<&Node>) -> bool {
    let before = old_version(version, old);
    before.is_some_and(|before| check::same(before.at("schema").value, version.at("schema").value))
}

fn old_version<'a>(version: &Node, old: Option<&Node<'a>>) -> Option<Node<'a>> {
    let mut before = old.into_iter().flat_map(|old| old.each("versions"));
    before.find(|before| before.text("name") == version.text("name"))
}

fn versions(spec: &Node, old: Option<&Node>, common: &[Option<Node>], errors: &mut Errors) {
    let list = spec.at("versions");
    let mut seen: Vec<&str> = Vec::new();
    let mut is_unique = true;
    for version in list.items() {
        is_unique &= !seen.contains(&version.text("name"));
        seen.push(version.text("name"));
        let problems = names::dns1035_label(version.text("name"));
        if !problems.is_empty() {
            errors.invalid_value(&version.at("name").path, &version.text("name").into(), problems.join(","));
        }
        deprecation_warning(&version, errors);
        for (part, _) in PARTS.iter().zip(common).filter(|(_, common)| common.is_none()) {
            (part.rule)(&version.at(part.field), has_same_schema(&version, old), errors);
        }
        if common_part(spec, &selectable::PART).is_none() {
            selectable::of_version(&version, old_version(&version, old).as_ref(), errors);
        }
    }
    if !is_unique {
        refuse_versions(&list, "must contain unique version names", errors);
    }
    if list.items().filter(|version| version.flag("storage")).count() != 1 {
        refuse_versions(&list, "must have exactly one version marked as storage version", errors);
    }
}

fn deprecation_warning(version: &Node, errors: &mut Errors) {
    let warning = version.at("deprecationWarning");
    if !warning.exists() {
        return;
    }
    if !version.flag("deprecated") {
        return errors.invalid(&warning, "can only be set for deprecated versions");
    }
    if warning.str().len() > WARNING_BYTES_MAX {
        errors.invalid(&warning, format!("must be <= {WARNING_BYTES_MAX} characters long"));
    }
    if warning.str().is_empty() {
        errors.invalid(&warning, "must not be an empty string");
    }
    if let Some((at, _)) = warning.str().char_indices().find(|(_, sign)| sign.is_control()) {
        let detail =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
        errors.invalid(&warning, detail);
    }
}

/// A part of a version that stands at the spec itself in upstream's internal form, and so in its errors, where it is
/// the same in all versions.
pub(super) struct Part {
    pub field: &'static str,
    pub common: &'static str,
    /// Told whether the schema of the version is as it was.
    pub rule: fn(&Node, bool, &mut Errors),
}

const PARTS: &[Part] = &[
    Part { field: "schema", common: "validation", rule: validation },
    Part { field: "subresources", common: "subresources", rule: |part, _, errors| subresources(part, errors) },
    Part {
        field: "additionalPrinterColumns",
        common: "additionalPrinterColumns",
        rule: |part, _, errors| columns(part, errors),
    },
];

pub(super) fn common_part<'a>(spec: &Node<'a>, part: &Part) -> Option<Node<'a>> {
    let mut all = spec.each("versions").map(|version| version.at(part.field).value);
    let first = all.next()?;
    all.all(|one| check::same(one, first)).then(|| Node::new(first, spec.path.child(part.common)))
}

fn validation(validation: &Node, unchanged: bool, errors: &mut Errors) {
    if validation.has("openAPIV3Schema") {
        schema::validate(&validation.at("openAPIV3Schema"), unchanged, errors);
    }
}

/// The list as upstream's internal type prints itself.
fn refuse_versions(list: &Node, detail: &str, errors: &mut Errors) {
    let texts: Vec<String> = list.items().map(|version| {
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
             \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
            json!(version.text("name")),
            version.flag("served"),
            version.flag("storage"),
            version.flag("deprecated"),
            version.at("deprecationWarning").value
        )
    }).collect();
    let shown = if texts.is_empty() { "null".into() } else { format!("[{}]", texts.join(",")) };
    errors.push(FieldError::new(Problem::Invalid, &list.path, shown, detail));
}

fn validate_names(entry: &Node, errors: &mut Errors) {
    let label = |at: &Node, errors: &mut Errors| {
        let problems = names::dns1035_label(at.str());
        if !problems.is_empty() {
            errors.invalid_value(&at.path, &at.str().into(), problems.join(","));
        }
    };
    let mixed_case = |at: &Node, errors: &mut Errors| {
        let problems = names::dns1035_label(&at.str().to_lowercase());
        if !problems.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.invalid_value(&at.path, &at.str().into(), detail);
        }
    };
    let (plural, singular) = (entry.at("plural"), entry.at("singular"));
    for name in [plural, singular].iter().filter(|name| !name.str().is_empty()) {
        label(name, errors);
    }
    let (kind, list_kind) = (entry.at("kind"), entry.at("listKind"));
    for name in [kind, list_kind].iter().filter(|name| !name.str().is_empty()) {
        mixed_case(name, errors);
    }
    entry.each("shortNames").for_each(|name| label(&name, errors));
    if !entry.text("kind").is_empty() && entry.text("kind") == entry.text("listKind") {
        errors.invalid(&entry.at("listKind"), "kind and listKind may not be the same");
    }
    entry.each("categories").for_each(|name| label(&name, errors));
}

fn subresources(entry: &Node, errors: &mut Errors) {
    let scale = entry.at("scale");
    if !scale.exists() {
        return;
    }
    for (field, roots) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."][..]),
        ("labelSelectorPath", &[".spec.", ".status."][..]),
    ] {
        let path = scale.at(field);
        if path.str().is_empty() {
            if field != "labelSelectorPath" {
                errors.required(&path, "");
            }
            continue;
        }
        if !path.str().starts_with('.') {
            errors.invalid(&path, "must be a simple json path starting with .");
        } else if !roots.iter().any(|root| path.str().starts_with(root)) {
            let either = if roots.len() > 1 { "either " } else { "" };
            let root = roots.iter().map(|root| root.trim_end_matches('.')).collect::<Vec<_>>().join(" or ");
            errors.invalid(&path, format!("should be a json path under {either}{root}"));
        }
    }
}

fn columns(list: &Node, errors: &mut Errors) {
    for column in list.items() {
        check::required(&column.at("name"), "", errors);
        let (kind, format) = (column.at("type"), column.at("format"));
        let one_of = |known: &[&str]| format!("must be one of {}", known.join(","));
        match kind.str() {
            "" => errors.required(&kind, one_of(COLUMN_TYPES)),
            known if COLUMN_TYPES.contains(&known) => {}
            _ => errors.invalid(&kind, one_of(COLUMN_TYPES)),
        }
        if !format.str().is_empty() && !COLUMN_FORMATS.contains(&format.str()) {
            errors.invalid(&format, one_of(COLUMN_FORMATS));
        }
        // The internal form, which errors follow, writes this name in another way.
        let path = Node::new(column.at("jsonPath").value, column.path.child("JSONPath"));
        match path.str() {
            "" => errors.required(&path, ""),
            text if !text.starts_with('.') => errors.invalid(&path, "must be a simple json path starting with ."),
            _ => {}
        }
    }
}

fn conversion(conversion: &Node, errors: &mut Errors) {
    if !conversion.exists() {
        return;
    }
    one_of(&conversion.at("strategy"), &["None", "Webhook"], errors);
    let webhook = conversion.at("webhook");
    // The internal form, which errors follow, has no level for the webhook.
    let inner = |field: &'static str, internal: &'static str| {
        let node = webhook.at(field);
        Node::new(node.value, conversion.path.child(internal))
    };
    let config = inner("clientConfig", "webhookClientConfig");
    let versions = inner("conversionReviewVersions", "conversionReviewVersions");
    if conversion.text("strategy") != "Webhook" {
        for node in [config, versions] {
            if node.exists() {
                errors.forbidden(&node, "should not be set when strategy is not set to Webhook");
            }
        }
        return;
    }
    if config.exists() {
        webhook_client::client_config(&config, errors)
    } else {
        errors.required(&config, "required when strategy is set to Webhook")
    }
    review_versions(&versions, errors);
}

fn review_versions(versions: &Node, errors: &mut Errors) {
    if versions.is_empty() {
        errors.required(versions, "");
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for version in versions.items() {
        if seen.contains(&version.str()) {
            errors.invalid(&version, "duplicate version");
            continue;
        }
        seen.push(version.str());
        check::rule(&version, names::dns1035_label(version.str()), errors);
    }
    if !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.invalid(versions, format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")));
    }
}

fn stored_versions(definition: &Node, errors: &mut Errors) {
    let stored = definition.at("status").at("storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::new(Problem::Invalid, &stored.path, "null", "must have at least one stored version"));
        return;
    }
    let versions = definition.at("spec").at("versions");
    for version in stored.items() {
        let name = version.str();
        if !versions.items().any(|known| known.text("name") == name) {
            errors.invalid(
                &version,
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                     {name} from status.storedVersions"
                ),
            );
        }
    }
    for storage in versions.items().filter(|version| version.flag("storage")) {
        let name = storage.text("name");
        if !stored.items().any(|version| version.str() == name) {
            errors.invalid(&stored, format!("must have the storage version {name}"));
        }
    }
}

/// Groups of the Kubernetes community need somebody's word that they are approved.
fn approval(definition: &Node, errors: &mut Errors) {
    let group = definition.at("spec").text("group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected {
        return;
    }
    let path = Path::new("metadata").child("annotations").key(APPROVAL);
    match definition.value.annotation(APPROVAL) {
        None => errors.push(FieldError::new(
            Problem::Required,
            &path,
            "",
            format!("protected groups must have approval annotation {APPROVAL:?}, {APPROVAL_LINK}"),
        )),
        Some(text) if text.starts_with("unapproved") || text.contains("://") => {}
        Some(text) => errors.invalid_value(
            &path,
            &Value::from(text),
            format!(
                "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting \
                 with \"unapproved\", {APPROVAL_LINK}"
            ),
        ),
    }
}

/// A text that must be there and be one of a list.
fn one_of(at: &Node, supported: &[&str], errors: &mut Errors) {
    match at.str() {
        "" => errors.required(at, ""),
        _ => check::one_of(at, supported, errors),
    }
}
