//! The tables of flags in `docs/configuration.md` are written by this test: `UPDATE=1 cargo test -p knarr documented`.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::environment::variables;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

#[test]
fn every_flag_is_documented() {
    let command = super::describe(crate::Arguments::command(), |_| false);
    let [server, agent] = super::WITH_FILE.map(|name| command.find_subcommand(name).expect("the command is there"));
    let has = |command: &Command, flag: &Arg| command.get_arguments().any(|other| row(other) == row(flag));
    let table = |command: &Command, is_wanted: &dyn Fn(&Arg) -> bool| {
        let mut rows: Vec<String> = command.get_arguments().filter(|flag| is_wanted(flag)).map(row).collect();
        rows.sort();
        format!("| Flag | Variable | Default | |\n|---|---|---|---|\n{}\n", rows.join("\n"))
    };
    let mut text = std::fs::read_to_string(FILE).expect("the page is there");
    let before = text.clone();
    for (name, table) in [
        ("both", table(server, &|flag| has(agent, flag))),
        ("server", table(server, &|flag| !has(agent, flag))),
        ("agent", table(agent, &|flag| !has(server, flag))),
    ] {
        let (begin, end) = (format!("<!-- flags: {name} -->\n"), "<!-- end -->");
        let start = text.find(&begin).expect("the page has a place for each table") + begin.len();
        let length = text[start..].find(end).expect("a table has an end");
        text.replace_range(start..start + length, &table);
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &text).expect("the page can be written");
    } else {
        assert!(
            text == before,
            "docs/configuration.md is not what the flags are; UPDATE=1 cargo test -p knarr documented"
        );
    }
}

fn row(flag: &Arg) -> String {
    let long = flag.get_long().expect("every flag has a long name");
    let aliases = flag.get_visible_aliases().unwrap_or_default();
    let mut names: Vec<String> = [long].iter().chain(&aliases).map(|name| format!("`--{name}`")).collect();
    names.extend(flag.get_short().map(|short| format!("`-{short}`")));
    let list = if matches!(flag.get_action(), ArgAction::Append) { ", repeatable" } else { "" };
    let is_switch = flag.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "true|false"));
    let defaults: Vec<String> = flag.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
    let default = if is_switch || defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) };
    let variables: Vec<String> = variables(flag).iter().map(|name| format!("`{name}`")).collect();
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let help = flag.get_long_help().map_or(help, ToString::to_string).replace('\n', " ").replace('|', "\\|");
    format!(
        "| {}{list} | {} | {} | {} |",
        names.join(", "),
        variables.join(", "),
        default.replace('|', "\\|"),
        help.trim_end_matches('.').replace('<', "\\<")
    )
}
