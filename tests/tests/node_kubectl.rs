//! Terminal sessions with real kubectl, old and new, and with our own, against a node with real containers: one file of
//! `testdata/node_sessions` per theme. How a session is written is told in `testkit::session`.

fn check(theme: &str) {
    let file = format!("{}/testdata/node_sessions/{theme}.txt", env!("CARGO_MANIFEST_DIR"));
    // Logs are rotated early, so that following one meets a rotation.
    if let Err(error) = testkit::session::run_on_node(file.as_ref(), &["--container-log-max-size", "64Ki"]) {
        panic!("{error:#}");
    }
}

/// One test per session, so that they run side by side; and no session may be forgotten here.
macro_rules! sessions {
    ($($theme:ident)*) => {
        $(#[test] fn $theme() { check(stringify!($theme)); })*

        #[test]
        fn every_session_is_run() {
            let folder = format!("{}/testdata/node_sessions", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let mut found: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().into()).collect();
            found.sort();
            let mut listed = vec![$(stringify!($theme)),*];
            listed.sort_unstable();
            assert_eq!(found, listed);
        }
    };
}

sessions! {
    run
    statuses
    logs
    streams
    node
}
