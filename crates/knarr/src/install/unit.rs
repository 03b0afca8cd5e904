//! The texts of the service: its unit and its environment.

use std::path::Path;

use super::line::Line;

/// `knarr.service`, `knarr-agent.service`.
pub fn name(role: &str) -> String {
    format!("{}.service", stem(role))
}

pub fn stem(role: &str) -> &'static str {
    if role == "agent" { "knarr-agent" } else { "knarr" }
}

/// Pods outlive the service (KillMode), and their groups are its own business (Delegate).
pub fn text(role: &str, program: &Path, line: &Line) -> String {
    let words: Vec<String> = line.words().iter().map(|word| quoted(word)).collect();
    format!(
        "\
[Unit]
Description=knarr {role}: Kubernetes
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
EnvironmentFile=-/etc/knarr/{stem}.env
ExecStart={program} {words}
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5
RestartPreventExitStatus={lasting}

[Install]
WantedBy=multi-user.target
",
        lasting = crate::check::EXIT_LASTING,
        stem = stem(role),
        program = program.display(),
        words = words.join(" "),
    )
}

/// As systemd reads words: `%` and `$` mean something to it, and blanks part words.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if word.is_empty()
        || word.contains(|character: char| character.is_whitespace() || matches!(character, '"' | '\'' | '\\' | ';'))
    {
        format!("\"{word}\"")
    } else {
        word
    }
}

/// The words of `ExecStart`, as [`quoted`] wrote them.
pub fn command(unit: &str) -> Option<Vec<String>> {
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="))?;
    let (mut words, mut word, mut inside, mut begun) = (Vec::new(), String::new(), false, false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // Also an empty word is one.
            '"' => inside = !inside,
            '\\' if inside => word.extend(characters.next()),
            '%' | '$' if characters.peek() == Some(&character) => word.extend(characters.next()),
            blank if blank.is_whitespace() && !inside => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
                continue;
            }
            other => word.push(other),
        }
        begun = true;
    }
    if begun {
        words.push(word);
    }
    Some(words)
}

/// The environment's file: what it holds is kept, except what is told anew.
pub fn environment(kept: &str, new: &[(String, String)]) -> String {
    let is_new = |line: &str| line.split_once('=').is_some_and(|(name, _)| new.iter().any(|(one, _)| one == name));
    let mut text: String = kept.lines().filter(|line| !is_new(line)).map(|line| format!("{line}\n")).collect();
    if text.is_empty() {
        text.push_str(
            "# Read by the service of knarr. Each flag is a variable, too: `knarr server --help` names them.\n",
        );
    }
    for (name, value) in new {
        text.push_str(&format!("{name}=\"{}\"\n", value.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    text
}

/// What the environment's file says.
pub fn variables(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| {
            let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            let plain = inner.map(|inner| inner.replace("\\\"", "\"").replace("\\\\", "\\"));
            (name.trim().to_owned(), plain.unwrap_or_else(|| value.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_says_what_is_to_run() {
        let flags = ["--data-dir=/srv/my data", "--eviction-hard=nodefs.available<10%", "--node-label=a=$b"];
        let line = Line { role: "server", flags: flags.map(String::from).to_vec(), environment: Vec::new() };
        let text = text("server", Path::new("/usr/local/bin/knarr"), &line);
        assert!(text.contains(
            "\nExecStart=/usr/local/bin/knarr server \"--data-dir=/srv/my data\" --eviction-hard=nodefs.available<10%% --node-label=a=$$b\n"
        ));
        for setting in [
            "Type=notify",
            "KillMode=process",
            "Delegate=yes",
            "TasksMax=infinity",
            "Restart=always",
            "RestartPreventExitStatus=78",
        ] {
            assert!(text.lines().any(|line| line == setting), "{setting}");
        }
        let mut words = vec!["/usr/local/bin/knarr", "server"];
        words.extend(flags);
        assert_eq!(command(&text).unwrap(), words);
        assert_eq!(name("agent"), "knarr-agent.service");
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        for word in [
            "",
            "a",
            "a b",
            "say \"hi\"",
            "back\\slash",
            "end\\",
            "50%",
            "%%",
            "$HOME",
            "$$",
            "it's",
            "a;b",
            "\ttab",
            "--x=",
        ] {
            let text = format!("ExecStart=p {}\n", quoted(word));
            assert_eq!(command(&text).unwrap(), ["p", word], "{text}");
        }
    }

    #[test]
    fn the_environment_is_kept_where_nothing_new_is_told() {
        let new = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let first = environment("", &new("KNARR_TOKEN", "one"));
        assert!(first.starts_with("# ") && first.ends_with("KNARR_TOKEN=\"one\"\n"), "{first}");
        assert_eq!(environment(&first, &[]), first);
        let second = environment(&format!("{first}MINE=1\n"), &new("KNARR_TOKEN", "a\"b"));
        assert_eq!(variables(&second), [new("MINE", "1"), new("KNARR_TOKEN", "a\"b")].concat());
        for value in ["", "two words", "\"", "\\", "\\\"", "a\\\\b", "=", "#", "'"] {
            assert_eq!(variables(&environment("", &new("NAME", value))), new("NAME", value), "{value}");
        }
        // A name is not another that begins alike, and comments stay.
        let kept = "# mine\nKNARR_TOKEN_FILE=/a\nKNARR_TOKEN=old\n";
        assert_eq!(environment(kept, &new("KNARR_TOKEN", "new")), "# mine\nKNARR_TOKEN_FILE=/a\nKNARR_TOKEN=\"new\"\n");
    }
}
