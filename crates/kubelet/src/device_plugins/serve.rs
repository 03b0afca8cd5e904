//! The kubelet's own socket, at which device plugins register that do not use `plugins_registry`.

use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};
use std::sync::Arc;

use devices::v1beta1::registration_server::{Registration, RegistrationServer};
use devices::v1beta1::{Empty, RegisterRequest};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use super::{DevicePlugins, RegisterError};

const SOCKET: &str = "kubelet.sock";

/// Serves until it is dropped. Sockets of plugins are removed first: this is how they learn that they must register again.
pub(super) async fn run(plugins: Arc<DevicePlugins>) -> std::io::Result<()> {
    let folder = plugins.folder.clone();
    remove_sockets(&folder)?;
    crate::plugins::label_for_plugins(&folder);
    let listener = UnixListener::bind(folder.join(SOCKET))?;
    let incoming = futures::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let service = RegistrationServer::new(Service { plugins });
    let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await;
    served.map_err(std::io::Error::other)
}

fn remove_sockets(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.file_type().is_socket() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

struct Service {
    plugins: Arc<DevicePlugins>,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let resource = request.resource_name.clone();
        match self.take(request).await {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(error) => {
                tracing::warn!(%error, resource, "cannot register device plugin");
                Err(Status::unknown(error.to_string()))
            }
        }
    }
}

impl Service {
    async fn take(&self, request: RegisterRequest) -> Result<(), RegisterError> {
        if request.version != super::VERSION {
            return Err(RegisterError::Version { version: request.version });
        }
        // Sockets are below the folder, wherever a plugin says they are.
        let endpoint = Path::new(&request.endpoint);
        let is_inside = endpoint.components().all(|part| matches!(part, Component::Normal(_)));
        if request.endpoint.is_empty() || !is_inside {
            return Err(RegisterError::Endpoint { endpoint: request.endpoint });
        }
        self.plugins.connect(&request.resource_name, &self.plugins.folder.join(endpoint)).await.map(drop)
    }
}
