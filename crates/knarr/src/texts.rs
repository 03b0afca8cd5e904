//! `knarr completion` and `knarr man`: what shells and `man` know of this program, made from its flags.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

#[derive(clap::Args)]
pub struct Completion {
    /// Name of the shell, such as bash: `source <(knarr completion bash)`.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args)]
pub struct Man {
    /// Command to describe, such as `server` or `cluster create` (default: knarr itself).
    command: Vec<String>,
    /// Write the pages of all commands to this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    all: Option<PathBuf>,
}

pub fn completion(flags: Completion) -> anyhow::Result<()> {
    print(&completion_of(flags.shell))
}

pub fn man(flags: Man) -> anyhow::Result<()> {
    if let Some(folder) = flags.all {
        std::fs::create_dir_all(&folder)?;
        for (name, text) in pages()? {
            std::fs::write(folder.join(name), text)?;
        }
        return Ok(());
    }
    let mut command = crate::Arguments::command();
    command.build();
    for word in &flags.command {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| anyhow::anyhow!("unknown command {:?}", flags.command.join(" ")))?;
    }
    print(&page(command)?)
}

/// Every text, with its place below `share`.
pub fn all() -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = [
        ("bash-completion/completions/knarr", Shell::Bash),
        ("zsh/site-functions/_knarr", Shell::Zsh),
        ("fish/vendor_completions.d/knarr.fish", Shell::Fish),
    ]
    .map(|(file, shell)| (PathBuf::from(file), completion_of(shell)))
    .into();
    all.extend(pages()?.into_iter().map(|(name, text)| (PathBuf::from("man/man1").join(name), text)));
    Ok(all)
}

fn completion_of(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut crate::Arguments::command(), "knarr", &mut text);
    text
}

/// `knarr.1`, `knarr-server.1`, `knarr-cluster-create.1`, ...
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = crate::Arguments::command();
    command.build();
    let (mut pages, mut waiting) = (Vec::new(), vec![command]);
    while let Some(command) = waiting.pop() {
        let wanted = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        waiting.extend(wanted.cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        pages.push((format!("{name}.1"), page(command)?));
    }
    pages.sort();
    Ok(pages)
}

fn page(command: clap::Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.version(env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    Ok(text)
}

fn print(text: &[u8]) -> anyhow::Result<()> {
    // A reader that has seen enough is no error.
    let _ = std::io::stdout().write_all(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_knows_them() {
        let all = all().unwrap();
        let text = |name: &str| {
            let found = all.iter().find(|(file, _)| file.ends_with(name));
            String::from_utf8(found.unwrap_or_else(|| panic!("{name}")).1.clone()).unwrap()
        };
        for page in ["knarr.1", "knarr-server.1", "knarr-cluster-create.1", "knarr-snapshot-restore.1"] {
            assert!(text(page).contains(".SH SYNOPSIS"), "{page}");
        }
        assert!(text("knarr-server.1").contains("cluster\\-init"));
        for file in ["completions/knarr", "site-functions/_knarr", "knarr.fish"] {
            let text = text(file);
            for word in ["cluster", "uninstall", "disable-agent"] {
                assert!(text.contains(word), "{file}: {word}");
            }
        }
    }
}
