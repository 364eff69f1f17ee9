//! Ports that a node can be told before it runs, and finds free each time it starts.
//!
//! A port belongs to a socket that is bound and never listens. While it lives, the kernel gives the port to nobody who asks for any port,
//! neither to bind nor to connect from; a program that binds to this very port with `SO_REUSEADDR`, as servers do, gets it.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that is kept until this is dropped.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _socket: Socket,
}

impl Port {
    /// Any free port.
    ///
    /// # Panics
    /// When there is none.
    pub fn reserve() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("an option of every socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        let address =
            socket.local_addr().ok().and_then(|address| address.as_socket()).expect("the address of a socket");
        Self { address, _socket: socket }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::TcpStream;

    use socket2::{Domain, Socket, Type};

    use super::Port;

    fn listen(port: &Port) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&port.address().into()).unwrap();
        socket.listen(8).unwrap();
        socket
    }

    #[test]
    fn a_server_can_listen_on_its_port_again_and_again() {
        let port = Port::reserve();
        for _ in 0..3 {
            assert!(TcpStream::connect(port.address()).is_err(), "nobody listens");
            let server = listen(&port);
            let client = TcpStream::connect(port.address()).unwrap();
            drop(server);
            drop(client);
        }
    }

    #[test]
    fn nobody_else_is_given_the_port() {
        let ports: Vec<_> = (0..200).map(|_| Port::reserve()).collect();
        let distinct: HashSet<_> = ports.iter().map(Port::address).collect();
        assert_eq!(distinct.len(), ports.len());
        for _ in 0..500 {
            let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(other.local_addr().unwrap()).unwrap();
            assert!(!distinct.contains(&other.local_addr().unwrap()));
            assert!(!distinct.contains(&client.local_addr().unwrap()));
        }
    }
}
