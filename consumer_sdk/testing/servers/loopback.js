// Preloaded (node -r) before a server: every TCP port is opened on 127.0.0.1, whatever the server's
// own code asks for. Some test servers have no option for it and would serve the whole network.
'use strict'

const net = require('net')

const HOST = '127.0.0.1'
const listen = net.Server.prototype.listen

function isPort (value) {
  return typeof value === 'number' || typeof value === 'string'
}

net.Server.prototype.listen = function (first, ...rest) {
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
