// Preloaded (node -r) before a server: every TCP port is opened on 127.0.0.1, whatever the server's
// own code asks for. Some test servers have no option for it and would serve the whole network.
// A connection that nobody uses stays open for ten minutes: Node would close it after five seconds,
// just when a client on a busy machine sends its next request.
'use strict'

const net = require('net')

const HOST = '127.0.0.1'
const IDLE = 600_000 // milliseconds
const listen = net.Server.prototype.listen

function isPort (value) {
  return typeof value === 'number' || typeof value === 'string'
}

net.Server.prototype.listen = function (first, ...rest) {
  if ('keepAliveTimeout' in this) this.keepAliveTimeout = IDLE
  const ready = rest.filter((each) => typeof each === 'function')
  if (first !== null && typeof first === 'object' && isPort(first.port)) {
    return listen.call(this, { ...first, host: HOST }, ...ready)
  }
  // listen(port, [host], [backlog], [ready]); text that is no number is the path of a local socket.
  if (isPort(first) && !Number.isNaN(Number(first))) {
    return listen.call(this, { port: Number(first), host: HOST }, ...ready)
  }
  throw new Error('loopback.js: listen() without a port is not supported')
}
