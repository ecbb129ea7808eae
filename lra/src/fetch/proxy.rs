//! Plain HTTP through a proxy, in the form that every proxy accepts: `GET http://host/path` on a
//! connection to the proxy.
//!
//! ureq always tunnels through a proxy (`CONNECT host:80`), which many proxies refuse for anything
//! but HTTPS. For a plain address, the connection here goes to the proxy, and the head of each
//! request is rewritten on its way out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ureq::http::uri::Scheme;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport,
};
use ureq::{Agent, Error, Proxy, ProxyProtocol};

/// Opens every connection of a download.
#[derive(Debug, Default)]
pub(super) struct Connections(DefaultConnector);

impl Connector for Connections {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let plain = details.uri.scheme() == Some(&Scheme::HTTP);
        let wanted = |proxy: &&Proxy| {
            plain
                && matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https)
                && !proxy.is_no_proxy(details.uri)
        };
        match details.config.proxy().filter(wanted) {
            Some(proxy) => Ok(Some(Box::new(Forwarded::connect(details, proxy)?))),
            None => self.0.connect(details, chained),
        }
    }
}

/// A connection to a proxy that requests addresses of one host.
#[derive(Debug)]
struct Forwarded {
    proxy: Box<dyn Transport>,
    /// Prefix of the path: `http://host`.
    site: String,
    /// Header that follows the request line; empty, or a whole header.
    authorization: String,
}

impl Forwarded {
    fn connect(details: &ConnectionDetails, proxy: &Proxy) -> Result<Forwarded, Error> {
        let direct = Agent::config_builder().proxy(None).build();
        let addrs = details
            .resolver
            .resolve(proxy.uri(), &direct, details.timeout)?;
        let transport = (details.run_connector)(&ConnectionDetails {
            uri: proxy.uri(),
            addrs,
            config: &direct,
            resolver: details.resolver,
            request_level: details.request_level,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        })?;
        let authority = details
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let authorization = match (proxy.username(), proxy.password()) {
            (None, None) => String::new(),
            (user, password) => {
                let (user, password) = (user.unwrap_or_default(), password.unwrap_or_default());
                let pair = STANDARD.encode(format!("{user}:{password}"));
                format!("Proxy-Authorization: Basic {pair}\r\n")
            }
        };
        Ok(Forwarded {
            proxy: transport,
            site: format!("http://{authority}"),
            authorization,
        })
    }

    /// Returns the head of a request with this proxy's additions. Requests here have no body, so
    /// the head is the whole request.
    fn rewritten(&self, head: &[u8]) -> Option<Vec<u8>> {
        let path = head.iter().position(|&byte| byte == b' ')? + 1;
        let rest = head.iter().position(|&byte| byte == b'\n')? + 1;
        let parts = [
            &head[..path],
            self.site.as_bytes(),
            head.get(path..rest)?,
            self.authorization.as_bytes(),
            &head[rest..],
        ];
        Some(parts.concat())
    }
}

impl Transport for Forwarded {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.proxy.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let head = self.proxy.buffers().output()[..amount].to_vec();
        let head = self.rewritten(&head).unwrap_or(head);
        let room = self.proxy.buffers().output();
        room.get_mut(..head.len())
            .ok_or_else(|| Error::ConnectProxyFailed("the address is too long".to_owned()))?
            .copy_from_slice(&head);
        self.proxy.transmit_output(head.len(), timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.proxy.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.proxy.is_open()
    }
}
