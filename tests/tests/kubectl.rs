//! Terminal sessions with real kubectl, old and new, and with our own, against a real server: one file of `testdata/sessions` per theme.
//! How a session is written is told in `testkit::session`.

fn check(theme: &str) {
    let file = format!("{}/testdata/sessions/{theme}.txt", env!("CARGO_MANIFEST_DIR"));
    if let Err(error) = testkit::session::run(file.as_ref()) {
        panic!("{error:#}");
    }
}

/// One test per session, so that they run side by side; and no session may be forgotten here.
macro_rules! sessions {
    ($($theme:ident)*) => {
        $(#[test] fn $theme() { check(stringify!($theme)); })*

        #[test]
        fn every_session_is_run() {
            let folder = format!("{}/testdata/sessions", env!("CARGO_MANIFEST_DIR"));
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
    get
    watch
    create
    generators
    apply
    server_side_apply
    edit_and_replace
    patch
    label_and_annotate
    delete
    explain
    discovery
    permissions
    diff
    raw
    wait_and_scale
    nodes
    errors
    usage
    output
    describe
    config
    kustomize
}
