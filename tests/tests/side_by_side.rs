//! Our kubectl prints what the real one prints: the same commands side by side on the same cluster, one file of
//! `testdata/side_by_side` per theme. How a theme is written is told in `testkit::side_by_side`.

use testkit::{Options, Server, side_by_side};

/// What answers: the API alone, all of the control plane, or a node with real containers too.
#[derive(Clone, Copy)]
enum On {
    Api,
    Controllers,
    Node,
}

fn check(theme: &str, on: On) {
    let folder = format!("{}/testdata/side_by_side", env!("CARGO_MANIFEST_DIR"));
    let server = match on {
        On::Api => Server::start_api(&[side_by_side::SERVICE_RANGE]),
        On::Controllers => {
            Server::start_with(Options { arguments: vec![side_by_side::SERVICE_RANGE.into()], ..Options::default() })
        }
        On::Node => Server::start_node(&[side_by_side::SERVICE_RANGE]),
    };
    let server = server.unwrap_or_else(|error| panic!("{error:#}"));
    if let On::Node = on {
        let program = testkit::server::binary().expect("knarr is built");
        let kubectl = server.kubectl_of(&program);
        // A server is ready before its node is registered.
        for state in ["--for=create", "--for=condition=Ready"] {
            kubectl.ok(&["kubectl", "wait", state, "node/node-1", "--timeout=30s"]);
        }
    }
    if let Err(error) = side_by_side::run(&server, folder.as_ref(), theme) {
        panic!("{error:#}");
    }
}

/// One test per theme, so that they run side by side; and no theme may be forgotten here.
macro_rules! themes {
    ($($theme:ident: $on:ident)*) => {
        $(#[test] fn $theme() { check(stringify!($theme), On::$on); })*

        #[test]
        fn every_theme_is_run() {
            let folder = format!("{}/testdata/side_by_side", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let files = files.filter(|path| path.is_file());
            let mut found: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().into()).collect();
            found.retain(|name| name != "differences" && name != "left");
            found.sort();
            let mut listed = vec![$(stringify!($theme)),*];
            listed.sort_unstable();
            assert_eq!(found, listed);
        }
    };
}

themes! {
    get: Api
    help: Api
    formats: Api
    create: Api
    apply: Api
    applyset: Api
    change: Api
    delete: Api
    set: Api
    describe: Controllers
    kinds: Api
    kuberc: Api
    trace: Api
    rollout: Controllers
    config: Api
    kustomize: Api
    usage: Api
    discovery: Api
    complete: Api
    auth: Api
    nodes: Api
    wait: Api
    node: Node
}
