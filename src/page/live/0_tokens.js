// The tokens of a text, and how the views show them: { tokens, names, gaps, words, special }, of which the last three may be empty.
function sequenceOf(text) {
  if (live.about.tokens === "word_pieces") return wordPiecesOf(text);
  const tokens = live.about.tokens === "bytes" ? Array.from(new TextEncoder().encode(text)) : numbersOf(text);
  return { tokens, names: namesOfTokens(tokens), gaps: [], words: [], special: [] };
}
function numbersOf(text) {
  const most = live.about.vocabulary - 1;
  return text.split(/[\s,，、]+/).filter((word) => word !== "").map((word) => {
    if (!/^\d+$/.test(word) || Number(word) > most) throw new Error(say("notAToken", { word, most }));
    return Number(word);
  });
}
// The names of tokens; of a letter of several bytes the first byte has the letter, and the others a dot.
function namesOfTokens(tokens) {
  if (live.about.tokens !== "bytes") return tokens.map(String);
  const names = [];
  for (const letter of decoded(tokens)) {
    names.push(letter);
    for (let more = new TextEncoder().encode(letter).length; more > 1 && names.length < tokens.length; --more) names.push("·");
  }
  return names.slice(0, tokens.length);
}
const textOfTokens = (tokens) => (live.about.tokens === "bytes" ? decoded(tokens) : tokens.join(" "));
const decoded = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
// A token that may come next; a byte can be part of a letter.
const nameOfNext = (token) => (live.about.tokens === "bytes" && token > 127 ? say("partOfLetter", { byte: token.toString(16).toUpperCase() }) : namesOfTokens([token])[0]);
// Whether bytes are text, or with `isOpen` may become text when more follow.
function isText(bytes, isOpen) {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes), { stream: isOpen });
    return true;
  } catch {
    return false;
  }
}

// BERT's words: without control characters, split at spaces, at punctuation, and around each Chinese character.
const PUNCTUATION = /[!-/:-@[-`{-~]|\p{P}/u, IDEOGRAPH = /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/u;
function wordsOfText(text) {
  const words = [];
  let isOpen = false;
  for (const letter of text) {
    if (/\s/u.test(letter)) isOpen = false;
    else if (letter === "\ufffd" || /\p{C}/u.test(letter)) continue;
    else if (PUNCTUATION.test(letter) || IDEOGRAPH.test(letter)) words.push(letter), isOpen = false;
    else if (isOpen) words[words.length - 1] += letter;
    else words.push(letter), isOpen = true;
  }
  return words;
}
// In lower case and without accents, if the model wants that.
const normalisedWord = (word) => (live.about.wordPieces.lowercase ? word.toLowerCase().normalize("NFD").replace(/\p{Mn}/gu, "") : word);

// The pieces of a word: each time the longest that the vocabulary has.
function piecesOfWord(word) {
  const pieces = [];
  for (let begin = 0; begin < word.length && [...word].length <= 100; ) {
    let end = word.length;
    while (end > begin && !live.tokenOf.has((begin > 0 ? "##" : "") + word.slice(begin, end))) --end;
    if (end === begin) return [live.about.wordPieces.unknown];
    pieces.push((begin > 0 ? "##" : "") + word.slice(begin, end));
    begin = end;
  }
  return pieces.length > 0 ? pieces : [live.about.wordPieces.unknown];
}
// Text, a special token that is written in it, such as [MASK], text, and so on.
function splitAtAdded(text) {
  const added = live.about.wordPieces.added.toSorted((a, b) => b.length - a.length).map((piece) => piece.replace(/[^\w\s]/g, "\\$&"));
  return text.split(new RegExp("(" + ["(?!)", ...added].join("|") + ")"));
}
function wordPiecesOf(text) {
  live.tokenOf = live.tokenOf || new Map(live.about.wordPieces.pieces.map((piece, token) => [piece, token]));
  const found = [];
  let number = 0;
  const addWord = (written, word) => {
    let begin = 0;
    for (const piece of piecesOfWord(word)) {
      const end = begin + piece.replace(/^##/, "").length;
      // As it was written, where the letters still correspond.
      found.push({ piece, word: number, special: 0, name: piece !== live.about.wordPieces.unknown && written.length === word.length && end <= word.length ? written.slice(begin, end) : undefined });
      begin = end;
    }
    ++number;
  };
  splitAtAdded(text).forEach((part, i) => {
    if (i % 2 === 1) found.push({ piece: part, word: number++, special: 1 });
    else for (const written of wordsOfText(part)) if (normalisedWord(written) !== "") addWord(written, normalisedWord(written));
  });
  if (found.length === 0) return { tokens: [] };
  const all = [{ piece: "[CLS]", word: -1, special: 1 }, ...found, { piece: "[SEP]", word: -1, special: 1 }];
  return {
    tokens: all.map(({ piece }) => live.tokenOf.get(piece)), names: all.map(({ piece, name }) => name || piece.replace(/^##/, "")),
    gaps: all.map(({ piece, word }, i) => (i > 1 && word >= 0 && !piece.startsWith("##") ? " " : "")), words: all.map(({ word }) => word), special: all.map(({ special }) => special),
  };
}
