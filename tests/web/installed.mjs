// What a program does with the installed package; script/web copies this beside node_modules.
import { Tensor, attention, version } from "saccade-attention";

const { o } = attention(Tensor.of([[1, 0]]), [[1, 0], [0, 1]], [[1], [3]], { scale: 0 });
if (o.at(0, 0) !== 2) throw new Error(`the mean of 1 and 3 is ${o.at(0, 0)}`);
console.log(`installed from its tarball: saccade ${version()}`);
