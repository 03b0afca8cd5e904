//! What a command is: its names, its flags, its help, what it runs.

use futures::future::LocalBoxFuture;

use crate::failure::Result;
use crate::flags::Flag;
use crate::session::Session;

pub(crate) type Run = for<'a> fn(&'a Session) -> LocalBoxFuture<'a, Result<()>>;

pub(crate) struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// The heading of `kubectl help` under which it stands.
    pub group: &'static str,
    pub short: &'static str,
    pub examples: &'static str,
    /// What may stand behind the name.
    pub usage: &'static str,
    pub flags: &'static [&'static [Flag]],
    pub subcommands: &'static [&'static Command],
    pub run: Option<Run>,
}

impl Command {
    pub(crate) const EMPTY: Command = Command {
        name: "",
        aliases: &[],
        group: "",
        short: "",
        examples: "",
        usage: "[options]",
        flags: &[],
        subcommands: &[],
        run: None,
    };

    fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'static Command> {
        self.subcommands.iter().copied().find(|command| command.answers_to(name))
    }
}

/// Where discovery is kept, unless somebody says otherwise.
pub(crate) const CACHE: &str = "$HOME/.kube/cache";

/// Flags that every command takes.
pub(crate) const GLOBAL: &[Flag] = &[
    Flag::text("as", "", "Username to impersonate for the operation."),
    Flag::array("as-group", "Group to impersonate, may be given several times."),
    Flag::text("as-uid", "", "UID to impersonate for the operation."),
    Flag::array("as-user-extra", "Extra of the user to impersonate, as key=value."),
    Flag::text("cache-dir", CACHE, "Where discovery is kept."),
    Flag::text("certificate-authority", "", "A file with the certificates of authorities."),
    Flag::text("client-certificate", "", "A file with the client's certificate."),
    Flag::text("client-key", "", "A file with the client's key."),
    Flag::text("cluster", "", "The cluster of the kubeconfig to use."),
    Flag::text("context", "", "The context of the kubeconfig to use."),
    Flag::switch("disable-compression", "Do not ask the server to compress."),
    Flag::switch("insecure-skip-tls-verify", "Do not check the server's certificate."),
    Flag::text("kubeconfig", "", "The kubeconfig file to use."),
    Flag::text(
        "kuberc",
        "",
        "Path to the kuberc file to use for preferences. This can be disabled by exporting KUBECTL_KUBERC=false feature gate or turning off the feature KUBERC=off.",
    ),
    Flag::duration("log-flush-frequency", "5s", "Not used: nothing is kept back."),
    Flag::switch("match-server-version", "Require the server's version to be the client's."),
    Flag::text("namespace", "", "The namespace of this request.").short('n'),
    Flag::text("password", "", "Password for basic authentication."),
    Flag::text("profile", "none", "Not used."),
    Flag::text("profile-output", "profile.pprof", "Not used."),
    Flag::text("request-timeout", "0", "How long one request may take; 0 for no limit."),
    Flag::text("server", "", "The address and port of the API server.").short('s'),
    Flag::text("tls-server-name", "", "The name the server's certificate must have."),
    Flag::text("token", "", "Bearer token."),
    Flag::text("user", "", "The user of the kubeconfig to use."),
    Flag::text("username", "", "Username for basic authentication."),
    Flag::integer("v", "0", "How much is logged.").short('v'),
    Flag::plain("vmodule", "Not used: nothing is logged file by file."),
    Flag::switch("warnings-as-errors", "A warning of the server makes the exit code 1."),
    Flag::switch("help", "Help for this command.").short('h'),
];
