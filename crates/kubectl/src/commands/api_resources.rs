//! `kubectl api-resources` and `kubectl api-versions`.

use serde_json::Value;

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::columns::Columns;
use crate::output::order::InOrder;
use crate::output::{json, kyaml, yaml};
use crate::resource::mapping::Mapping;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static RESOURCES: Command = Command {
    name: "api-resources",
    group: super::OTHER,
    short: "Print the supported API resources on the server.",
    examples: "kubectl api-resources --namespaced=false",
    usage: "[flags] [options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(resources(session))),
    ..Command::EMPTY
};
pub(super) static VERSIONS: Command = Command {
    name: "api-versions",
    group: super::OTHER,
    short: "Print the supported API versions on the server, in the form of \"group/version\".",
    usage: "[options]",
    run: Some(|session| Box::pin(versions(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("api-group", "", "Only this group."),
    Flag::switch("cached", "Believe what is kept on disk."),
    Flag::list("categories", "Only what is in these categories."),
    Flag::on("namespaced", "Only what is, or is not, in namespaces."),
    Flag::switch("no-headers", "No line with the names of columns."),
    Flag::text("output", "", "json, yaml, kyaml, name or wide.").short('o'),
    Flag::switch("show-managed-fields", "Keep managedFields when printing objects."),
    Flag::text("sort-by", "", "name or kind."),
    Flag::list("verbs", "Only what knows these verbs."),
];

async fn resources(session: &Session) -> Result<()> {
    let flags = &session.flags;
    if !session.arguments().is_empty() {
        return session.usage(format!("unexpected arguments: [{}]", session.arguments().join(" ")));
    }
    let output = flags.text("output");
    if !["", "json", "kyaml", "name", "wide", "yaml"].contains(&output) {
        return Err(Failure::message(format!(
            "unable to match a printer suitable for the output format {output:?}, allowed formats are: json,kyaml,name,wide,yaml"
        )));
    }
    if !["", "name", "kind"].contains(&flags.text("sort-by")) {
        return Err(Failure::message("--sort-by accepts only name or kind"));
    }
    let mut shown = preferred(session, !flags.on("cached"), |mapping| {
        (!flags.given("api-group") || mapping.group == flags.text("api-group"))
            && (!flags.given("namespaced") || mapping.namespaced == flags.on("namespaced"))
            && flags.list("verbs").iter().all(|verb| mapping.can(verb))
            && flags.list("categories").iter().all(|category| mapping.categories.contains(category))
            && !mapping.verbs.is_empty()
    })
    .await?;
    match flags.text("sort-by") {
        "name" => shown.sort_by(|one, other| one.plural.cmp(&other.plural)),
        "kind" => shown.sort_by(|one, other| (&one.kind, &one.plural).cmp(&(&other.kind, &other.plural))),
        _ => {}
    }
    if output == "name" {
        shown.iter().for_each(|mapping| terminal::outln(&mapping.resource()));
        return Ok(());
    }
    let list = list(&shown);
    match output {
        "json" => terminal::outln(&json::pretty_in_order(&list, FIELD_ORDER)),
        "yaml" => terminal::out(&yaml::text(&list)),
        "kyaml" => terminal::out(&kyaml::document(&InOrder::named(&list, FIELD_ORDER))),
        _ => table(&shown, output == "wide", !flags.on("no-headers")),
    }
    Ok(())
}

/// The order of Go's fields, of the list and of its items.
const FIELD_ORDER: &[&str] = &[
    "name",
    "singularName",
    "namespaced",
    "group",
    "version",
    "kind",
    "apiVersion",
    "groupVersion",
    "resources",
    "verbs",
    "shortNames",
    "categories",
];

fn list(shown: &[Mapping]) -> Value {
    let item = |mapping: &Mapping| {
        let mut item = serde_json::json!({
            "name": mapping.plural, "singularName": mapping.singular, "namespaced": mapping.namespaced,
            "version": mapping.version, "kind": mapping.kind, "verbs": mapping.verbs,
        });
        if !mapping.group.is_empty() {
            item["group"] = mapping.group.as_str().into();
        }
        for (key, list) in [("shortNames", &mapping.short_names), ("categories", &mapping.categories)] {
            if !list.is_empty() {
                item[key] = list.clone().into();
            }
        }
        item
    };
    let resources: Value = if shown.is_empty() { Value::Null } else { shown.iter().map(item).collect() };
    serde_json::json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": resources})
}

fn table(shown: &[Mapping], wide: bool, headers: bool) {
    let mut text = String::new();
    if headers {
        text += "NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND";
        text += if wide { "\tVERBS\tCATEGORIES\n" } else { "\n" };
    }
    for mapping in shown {
        text += &format!(
            "{}\t{}\t{}\t{}\t{}",
            mapping.plural,
            mapping.short_names.join(","),
            mapping.api_version(),
            mapping.namespaced,
            mapping.kind
        );
        text += &if wide {
            format!("\t{}\t{}\n", mapping.verbs.join(","), mapping.categories.join(","))
        } else {
            "\n".into()
        };
    }
    terminal::out(&Columns::table().align(&text));
}

/// What is wanted in its preferred version, which comes first, sorted by group and name.
async fn preferred(session: &Session, fresh: bool, wanted: impl Fn(&Mapping) -> bool) -> Result<Vec<Mapping>> {
    let mut shown: Vec<Mapping> = Vec::new();
    for mapping in session.discovered(fresh).await? {
        let known = shown.iter().any(|known| known.group == mapping.group && known.plural == mapping.plural);
        if wanted(&mapping) && !known {
            shown.push(mapping);
        }
    }
    shown.sort_by(|one, other| (&one.group, &one.plural).cmp(&(&other.group, &other.plural)));
    Ok(shown)
}

/// What all resources with a verb are called, with their groups.
pub(crate) async fn names(session: &Session, verb: &str) -> Result<Vec<String>> {
    Ok(preferred(session, false, |mapping| mapping.can(verb)).await?.iter().map(Mapping::resource).collect())
}

async fn versions(session: &Session) -> Result<()> {
    if !session.arguments().is_empty() {
        return session.usage(format!("unexpected arguments: [{}]", session.arguments().join(" ")));
    }
    let mut found: Vec<String> = Vec::new();
    let core = session.send(&Call::get("/api")).await?;
    found.extend(
        core["versions"].as_array().into_iter().flatten().filter_map(|version| version.as_str()).map(str::to_string),
    );
    let groups = session.send(&Call::get("/apis")).await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            found.extend(version["groupVersion"].as_str().map(str::to_string));
        }
    }
    found.sort();
    found.iter().for_each(|version| terminal::outln(version));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_listed_with_their_names() {
        let mapping = Mapping {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
            singular: "deployment".into(),
            namespaced: true,
            short_names: vec!["deploy".into()],
            verbs: vec!["get".into()],
            ..Default::default()
        };
        let shown = list(&[mapping]);
        let item = json!({"name": "deployments", "singularName": "deployment", "namespaced": true, "group": "apps",
            "version": "v1", "kind": "Deployment", "verbs": ["get"], "shortNames": ["deploy"]});
        assert_eq!(shown["resources"], json!([item]));
        assert_eq!(list(&[])["resources"], Value::Null);
    }
}
