//! The client library that most scripts use: `tests/python/test_client.py` against a real server.

use std::process::Command;

use testkit::Server;

#[test]
fn python_client() {
    let tools = testkit::kubectl::tools_dir().expect("the tools of `make tools`");
    let server = Server::start_api(&[]).unwrap();
    server.default_account("default").unwrap();
    let output = Command::new(tools.join("python/bin/python"))
        .args(["-W", "ignore", "-m", "unittest", "-v", "test_client"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/python"))
        .env("KUBECONFIG", server.kubeconfig())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the Python of `make tools`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
