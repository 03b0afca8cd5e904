// The policy lets in those style elements that carry this answer's nonce; CodeMirror and xterm write some.

export const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? '';

/** xterm asks for no nonce: every style element that the page's code makes gets it. */
export function markStyles() {
  const create = document.createElement.bind(document) as (name: string, options?: ElementCreationOptions) => HTMLElement;
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    const element = create(name, options);
    if (nonce && name === 'style') element.setAttribute('nonce', nonce);
    return element;
  }) as typeof document.createElement;
}
