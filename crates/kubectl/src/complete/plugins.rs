//! Commands that are programs of their own, `kubectl-hello-world`. What may follow them they say themselves, through a
//! program named `kubectl_complete-hello-world` beside them.

use super::{Answer, debug, directive};
use crate::commands::plugin;

/// The words that call it.
pub(crate) type Plugin = Vec<String>;

/// Plugins that are commands of their own, not those below a command that is built in.
pub(crate) fn all() -> Vec<Plugin> {
    let mut found: Vec<Plugin> = plugin::names()
        .iter()
        .filter_map(|name| name.strip_prefix("kubectl-"))
        .map(|name| name.split('-').map(|word| word.replace('_', "-")).collect())
        .collect();
    found.retain(|words: &Plugin| crate::commands::ROOT.find(&words[0]).is_none());
    found.sort();
    found.dedup();
    found
}

/// The next words of all plugins that begin with these.
pub(crate) fn under(plugins: &[Plugin], words: &[String]) -> Vec<String> {
    let mut found: Vec<&String> = plugins
        .iter()
        .filter(|plugin| plugin.starts_with(words))
        .filter_map(|plugin| plugin.get(words.len()))
        .collect();
    found.dedup();
    found.into_iter().map(|word| format!("{word}\tThe command {word} is a plugin installed by the user")).collect()
}

pub(crate) fn answer(plugins: &[Plugin], before: &[String], last: &str) -> Option<Answer> {
    let known = |count: &usize| plugins.iter().any(|plugin| plugin.starts_with(&before[..*count]));
    let count = (1..=before.len()).rev().find(known)?;
    let mut found = Vec::new();
    if count == before.len() && !last.starts_with('-') {
        found.extend(under(plugins, before).into_iter().filter(|line| line.starts_with(last)));
    }
    let name = before[..count].iter().map(|word| word.replace('-', "_")).collect::<Vec<_>>().join("-");
    debug(&format!("About to look for: kubectl_complete-{name}"));
    let arguments: Vec<&str> = before[count..].iter().map(String::as_str).chain([last]).collect();
    let Some(program) = plugin::on_path(&format!("kubectl_complete-{name}")) else {
        debug(&format!("Plugin kubectl-{name} does not provide a matching completion executable"));
        return Some((found, directive::DEFAULT));
    };
    debug(&format!("About to call: {} {}", program.display(), arguments.join(" ")));
    let output = std::process::Command::new(program).args(&arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_string).collect();
    // The directive is the last line, and may be left out.
    let directive = lines.last().and_then(|line| line.strip_prefix(':')?.parse().ok());
    if directive.is_some() {
        lines.pop();
    }
    found.extend(lines);
    Some((found, directive.unwrap_or(directive::DEFAULT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_plugins_are_offered_one_by_one() {
        let plugins: Vec<Plugin> = ["hello", "hello world", "other"]
            .iter()
            .map(|line| line.split(' ').map(str::to_string).collect())
            .collect();
        let names = |words: &[String]| -> Vec<String> {
            under(&plugins, words).iter().map(|line| line.split('\t').next().unwrap().to_string()).collect()
        };
        assert_eq!(names(&[]), ["hello", "other"]);
        assert_eq!(names(&["hello".into()]), ["world"]);
    }
}
