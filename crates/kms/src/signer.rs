//! An external signer of service accounts' tokens behind its socket.

use std::path::Path;
use std::time::Duration;

use tonic::transport::Channel;

use crate::client::{channel, within};
use crate::externaljwt::external_jwt_signer_client::ExternalJwtSignerClient;
use crate::{Error, externaljwt};

#[derive(Clone, Debug)]
pub struct Signer {
    channel: Channel,
}

impl Signer {
    /// Connects with the first call. `socket` is a path, or `@name` in the abstract namespace of Linux.
    pub fn new(socket: &Path) -> Signer {
        Signer { channel: channel(socket) }
    }

    /// `claims` is the second part of a token.
    pub async fn sign(&self, claims: &str, timeout: Duration) -> Result<externaljwt::SignJwtResponse, Error> {
        let call = || async {
            let request = externaljwt::SignJwtRequest { claims: claims.to_owned() };
            self.client().sign(request).await
        };
        within(timeout, call).await
    }

    pub async fn fetch_keys(&self, timeout: Duration) -> Result<externaljwt::FetchKeysResponse, Error> {
        let call = || async { self.client().fetch_keys(externaljwt::FetchKeysRequest {}).await };
        within(timeout, call).await
    }

    pub async fn metadata(&self, timeout: Duration) -> Result<externaljwt::MetadataResponse, Error> {
        let call = || async { self.client().metadata(externaljwt::MetadataRequest {}).await };
        within(timeout, call).await
    }

    fn client(&self) -> ExternalJwtSignerClient<Channel> {
        ExternalJwtSignerClient::new(self.channel.clone())
    }
}
